"""Rankers as folds: against the slow twin, and case by case."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralm_engine.errors import InputError, RunError
from ralm_engine.ralm.folds import BASELINE, ShardFold, lookback_ranker
from ralm_engine.ralm.reference import choose_slowly, sum32
from ralm_engine.schema import CANDIDATES, STRIDES

RANKERS = ["none", "first", "random", "logprob", "oracle"]


def stride_line(number, baseline, hits, **other):
    return {
        "stream_id": "s",
        "stride": number,
        "target_begin": 1 + 4 * max(number, 0),
        "target_len": len(baseline),
        "query_terms": 3,
        "retrieval_status": "ok",
        "token_ids": [0] * len(baseline),
        "baseline_nll": baseline,
        "baseline_entropy": baseline,
        "context_len": 1,
        "num_candidates": hits,
        "status": "ok",
        **other,
    }


def candidate_line(number, rank, target, rank_nll, **other):
    return {
        "stream_id": "s",
        "stride": number,
        "rank": rank,
        "passage": rank,
        "score": 1.0,
        "passage_len": 1,
        "context_len": 1,
        "duplicate_of": -1,
        "target_nll": target,
        "rank_nll": rank_nll,
        "target_entropy": None,
        "target_rank": None,
        "status": "ok",
        **other,
    }


def fold_of(strides, candidates, rankers=()):
    schema = CANDIDATES
    for name in rankers:
        schema = schema.append(pa.field(name, pa.float32()))
    return ShardFold.of(
        pa.Table.from_pylist(strides, schema=STRIDES),
        pa.Table.from_pylist(candidates, schema=schema),
    )


def choose_one(ranker, candidates, *, rankers=()):
    length = len(candidates[0]["target_nll"]) if candidates else 2
    strides = [stride_line(0, [1.0] * length, len(candidates))]
    return int(fold_of(strides, candidates, rankers).choose([ranker], seed=0)[ranker][0])


# Few distinct values make ties common; the far ones find lost bits and overflow.
VALUES = st.sampled_from([0.0, 0.5, 0.1, 3.0, 48.0, 48.01, 6e4, math.nan, math.inf])
SCORES = st.sampled_from([None, -1.0, 0.0, 2.5, math.nan])


@st.composite
def shards(draw):
    """Strides with 0..4 candidates, ragged lists, non-finite values, lines in any order."""
    strides, candidates = [], []
    for number in range(draw(st.integers(0, 4))):
        length = draw(st.integers(1, 3))
        values = st.lists(VALUES, min_size=length, max_size=length)
        hits = draw(st.integers(0, 4))
        strides.append(stride_line(number, draw(values), hits))
        for rank in range(hits):
            rank_nll = draw(st.none() | st.lists(VALUES, max_size=20))
            status = draw(st.sampled_from(["ok", "ok", "ok", "nonfinite", "skipped"]))
            line = candidate_line(number, rank, draw(values), rank_nll, status=status)
            candidates.append({**line, "ranker_x": draw(SCORES)})
    return strides, draw(st.permutations(candidates))


@settings(deadline=None, max_examples=150)
@given(shards())
def test_every_choice_and_sum_equals_the_slow_twin(shard):
    """Fails if any vectorised ranker or sum differs from one stride at a time, bit for bit."""
    strides, candidates = shard
    fold = fold_of(strides, candidates, ["ranker_x"])
    cases = {"first": ("first", None), "oracle": ("oracle", None), "logprob": ("logprob", None)}
    cases |= {"ranker_x": ("ranker_x", None), "oracle@2": ("oracle", 2), "oracle@1": ("oracle", 1)}
    cases |= {lookback_ranker(n): ("logprob", n) for n in (4, 8, 16)}
    choices = fold.choose(cases, seed=0)
    curve = fold.oracle_nll()
    for place, stride in enumerate(strides):
        own = [line for line in candidates if line["stride"] == stride["stride"]]
        own = [{key: rounded(value) for key, value in line.items()} for line in own]
        for name, (ranker, length) in cases.items():
            expected = choose_slowly(ranker, own, length=length)
            assert choices[name][place] == expected, (name, own)
            nll, count = fold.nll(choices[name])
            values = stride["baseline_nll"] if expected == BASELINE else target(own, expected)
            finite = [v for v in rounded(values) if math.isfinite(v)]
            assert nll[place] == np.float32(sum32(finite))
            assert count[place] == len(finite)
        for depth in range(curve.shape[1]):
            at_depth = fold.nll(fold.choose([f"oracle@{depth + 1}"], seed=0)[f"oracle@{depth + 1}"])
            assert curve[place, depth] == at_depth[0][place]


def rounded(value):
    """A list of floats as float32 stores them."""
    return [float(np.float32(v)) for v in value] if isinstance(value, list) else value


def target(lines, rank):
    return next(line["target_nll"] for line in lines if line["rank"] == rank)


def test_a_hundredth_of_a_nat_at_a_sum_of_48_is_no_tie():
    """Probe 11. Fails if rank sums lose float32 precision."""
    lines = [
        candidate_line(0, 0, [1.0], [3.0] * 15 + [3.01]),
        candidate_line(0, 1, [1.0], [3.0] * 16),
    ]
    assert choose_one("logprob", lines) == 1
    assert choose_one("logprob@16", lines) == 1


def test_lookback_takes_the_last_tokens_not_the_first():
    """Fails if a shorter lookback sums the oldest tokens."""
    lines = [
        candidate_line(0, 0, [1.0], [0.0] * 12 + [1.0] * 4),
        candidate_line(0, 1, [1.0], [9.0] * 12 + [0.5] * 4),
    ]
    assert choose_one("logprob@4", lines) == 1
    assert choose_one("logprob@8", lines) == 0
    assert choose_one("logprob", lines) == 0


def test_equal_passages_tie_to_the_lowest_rank():
    """Probe 22. Fails if the same values at three ranks do not choose the first of them."""
    values = [0.1, 0.2, 0.3, 0.7]
    lines = [candidate_line(0, rank, values, values * 4) for rank in (0, 1, 2)]
    lines[0] = {**lines[0], "target_nll": [9.0] * 4, "rank_nll": [9.0] * 16}
    assert choose_one("oracle", lines[::-1]) == 1
    assert choose_one("logprob", lines[::-1]) == 1


@pytest.mark.parametrize("ranker", ["first", "random", "logprob", "oracle"])
def test_strides_without_a_usable_candidate_fall_back_to_the_baseline(ranker):
    """Fails if a nonfinite, skipped or absent candidate is ever chosen."""
    lines = [
        candidate_line(0, 0, [math.nan], [0.0], status="nonfinite"),
        candidate_line(0, 1, [0.0], [0.0], status="skipped"),
        candidate_line(0, 2, [0.0], [0.0], status="nonfinite"),
    ]
    assert choose_one(ranker, lines) == BASELINE
    assert choose_one(ranker, []) == BASELINE


def test_a_higher_score_of_an_extra_ranker_wins_and_nan_never():
    """Fails if ranker columns are taken as costs, or a missing score can win."""
    lines = [candidate_line(0, rank, [1.0], [1.0]) for rank in range(3)]
    lines = [{**line, "ranker_x": s} for line, s in zip(lines, (0.5, 0.7, math.nan), strict=True)]
    assert choose_one("ranker_x", lines, rankers=["ranker_x"]) == 1


def test_an_unknown_ranker_is_named():
    """Fails if a misspelt ranker is taken for another or crashes."""
    with pytest.raises(InputError, match='unknown ranker "orakle"'):
        choose_one("orakle", [candidate_line(0, 0, [1.0], [1.0])])


def test_random_depends_on_seed_stream_and_stride_only(synthetic):
    """Fails if shard size or line order changes the draw, or the seed, stream, stride does not."""
    source = synthetic(streams={"a": 801, "b": 801}, no_hits=0.0)

    def draws(size, seed, *, flip=False):
        found = {}
        for tables in source.shards(size):
            strides, lines = tables["strides"], tables["candidates"]
            if flip:
                strides, lines = (t.take(np.arange(len(t))[::-1]) for t in (strides, lines))
            choice = ShardFold.of(strides, lines).choose(["random"], seed=seed)["random"]
            keys = zip(strides["stream_id"].to_pylist(), strides["stride"].to_pylist(), strict=True)
            found |= dict(zip(keys, choice.tolist(), strict=True))
        return found

    base = draws(50, 0)
    assert draws(7, 0) == base
    assert draws(50, 0, flip=True) == base
    assert draws(50, 1) != base
    streams = {name: [v for (s, _), v in base.items() if s == name] for name in ("a", "b")}
    assert streams["a"] != streams["b"]


def test_random_is_uniform_over_usable_candidates():
    """Fails if one rank is favoured: chi-square with 3 degrees of freedom, p = 1e-6 at 30.7."""
    count = 4000
    strides = [stride_line(n, [1.0], 5) for n in range(count)]
    lines = [
        candidate_line(n, rank, [1.0], None, status="skipped" if rank == 2 else "ok")
        for n in range(count)
        for rank in range(5)
    ]
    chosen = np.bincount(fold_of(strides, lines).choose(["random"], seed=3)["random"], minlength=5)
    assert chosen[2] == 0
    expected = count / 4
    assert ((chosen[[0, 1, 3, 4]] - expected) ** 2 / expected).sum() < 30.7


def test_bad_targets_are_counted_and_left_out():
    """Probe 12. Fails if a NaN reaches a sum or its token is still counted."""
    strides = [stride_line(0, [1.0, math.nan, 2.0], 0, status="nonfinite")]
    fold = fold_of(strides, [])
    nll, count = fold.nll(fold.choose(["first"], seed=0)["first"])
    assert nll.tolist() == [3.0]
    assert count.tolist() == [2]
    assert fold.strides.baseline_bad_S.tolist() == [1]


@pytest.mark.parametrize(
    ("strides", "candidates", "expected"),
    [
        ([stride_line(0, [1.0], 0)], [candidate_line(0, 0, [1.0], [])], "num_candidates"),
        ([stride_line(0, [1.0], 1)], [candidate_line(1, 0, [1.0], [])], "without their stride"),
        ([], [candidate_line(1, 0, [1.0], [])], "without their stride"),
        ([stride_line(0, [1.0], 2)], [candidate_line(0, 0, [1.0], [])] * 2, "the same rank"),
        ([stride_line(0, [1.0], 1)], [candidate_line(0, 0, [], [])], "target_nll is not"),
        ([stride_line(0, [1.0], 0, target_len=2)], [], "baseline_nll is not"),
    ],
)
def test_tables_that_contradict_each_other_are_refused(strides, candidates, expected):
    """Fails if damaged tables are folded into figures."""
    with pytest.raises(RunError, match=expected):
        fold_of(strides, candidates)
