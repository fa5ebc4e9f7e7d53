"""analyze_run against sums done by hand, and on every kind of incomplete or odd run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ralm_engine.errors import InputError, RunError
from ralm_engine.ralm.analysis import analyze_run, write_summary
from ralm_engine.ralm.reference import choose_slowly, sum32
from ralm_engine.schema import CANDIDATES, STREAMS, STRIDES, SUMMARY
from ralm_engine.store.rundir import RunDirectory

# Values are sums of up to a few hundred float32 numbers in another order: 1e-6 relative is ample.
CLOSE = 1e-6


def by_hand(source, ranker):
    """NLL sum and targets per stream, one stride at a time."""
    name, _, depth = ranker.partition("@")
    totals = {}
    for stride in source.strides:
        key = (stride["stream_id"], stride["stride"])
        own = [c for c in source.candidates if (c["stream_id"], c["stride"]) == key]
        length = int(depth) if depth else None
        rank = -1 if name == "none" else choose_slowly(name, own, length=length)
        values = stride["baseline_nll"] if rank < 0 else own[rank]["target_nll"]
        total, count = totals.get(key[0], (0.0, 0))
        totals[key[0]] = (total + sum32(values), count + len(values))
    return totals


def test_every_figure_equals_one_done_by_hand(tmp_path, synthetic, write_run):
    """Fails if a ranker, a denominator, a depth, a lookback or a stream is summed wrongly."""
    source = synthetic(streams={"a": 161, "b": 98}, rankers=("x",))
    summary = analyze_run(write_run(tmp_path / "run", source), resamples=0)
    words = {"word": 3 * 259, "space": 2 * 259, "byte": 5 * 259}
    for ranker in ("none", "first", "logprob", "oracle", "ranker_x"):
        sums = by_hand(source, ranker)
        total, count = (sum(column) for column in zip(*sums.values(), strict=True))
        found = summary["perplexity"][ranker]
        assert found["token"] == pytest.approx(math.exp(total / count), rel=CLOSE)
        for key, divisor in words.items():
            assert found[key] == pytest.approx(math.exp(total / divisor), rel=CLOSE)
        bits = summary["bits_per_byte"][ranker]["value"]
        assert bits == pytest.approx(total / math.log(2) / words["byte"], rel=CLOSE)
        for entry in summary["streams"]:
            own, tokens = sums[entry["stream_id"]]
            value = entry["perplexity"][ranker]["token"]
            assert value == pytest.approx(math.exp(own / tokens), rel=CLOSE)
    for depth, value in enumerate(summary["oracle_at"], start=1):
        totals = by_hand(source, f"oracle@{depth}").values()
        total, count = (sum(column) for column in zip(*totals, strict=True))
        assert value == pytest.approx(math.exp(total / count), rel=CLOSE)
    for entry in summary["lookback"]:
        totals = by_hand(source, f"logprob@{entry['lookback']}").values()
        total, count = (sum(column) for column in zip(*totals, strict=True))
        assert entry["value"] == pytest.approx(math.exp(total / count), rel=CLOSE)
    assert [entry["lookback"] for entry in summary["lookback"]] == [4, 8, 16]
    assert summary["counts"]["tokens"] == 257


def test_differences_agreement_and_choices_are_those_of_the_strides(tmp_path, synthetic, write_run):
    """Fails if differences change sign, agreement counts other strides, or a choice is lost."""
    source = synthetic(streams={"a": 161}, no_hits=0.3)
    summary = analyze_run(write_run(tmp_path / "run", source), resamples=0)
    value = {ranker: row["token"] for ranker, row in summary["perplexity"].items()}
    found = summary["difference"]["none"]["oracle"]["token"]["value"]
    assert found == pytest.approx(value["oracle"] - value["none"])
    keys = [(s["stream_id"], s["stride"]) for s in source.strides if s["num_candidates"]]
    own = [[c for c in source.candidates if (c["stream_id"], c["stride"]) == key] for key in keys]
    oracle = [choose_slowly("oracle", lines) for lines in own]
    agree = [choose_slowly("logprob", c) == o for c, o in zip(own, oracle, strict=True)]
    assert summary["agreement"]["logprob"] == pytest.approx(np.mean(agree))
    assert summary["agreement"]["oracle"] == 1.0
    assert summary["oracle_choice"]["count"] == np.bincount(oracle, minlength=5).tolist()
    assert summary["oracle_choice"]["strides"] == len(own)
    real = [s for s in source.strides if s["stride"] >= 0]
    assert summary["retrieval"]["no_hits"] == len(real) - len(own)
    mean = {r: math.log(v) for r, v in value.items()}
    gap = (mean["first"] - mean["logprob"]) / (mean["first"] - mean["oracle"])
    assert summary["gap_closed"]["first"]["logprob"]["value"] == pytest.approx(gap)


def test_the_shard_size_changes_no_figure(tmp_path, synthetic, write_run):
    """Spec 2.8. Fails if any figure, random's choices included, depends on how shards are cut."""
    source = synthetic(streams={"a": 161, "b": 98})
    figures = []
    for size in (1, 7, 1000):
        summary = analyze_run(write_run(tmp_path / str(size), source, size=size), seed=3)
        figures.append({k: v for k, v in summary.items() if k not in ("shards", "throughput")})
    assert figures[0] == figures[1] == figures[2]


def test_total_over_total_not_a_mean_of_means(tmp_path, synthetic, write_run):
    """Probe 5. Fails if windows of 1,023 and 3 tokens count the same."""
    source = synthetic(streams={"long": 1024, "short": 4}, warmup=2000)
    summary = analyze_run(write_run(tmp_path / "run", source), resamples=0)
    values = [v for stride in source.strides for v in stride["baseline_nll"]]
    assert len(values) == 1026
    assert summary["perplexity"]["none"]["token"] == pytest.approx(
        math.exp(np.mean(values, dtype=np.float64)), rel=CLOSE
    )


def hand_made(path, streams, strides, candidates=()):
    """A finished run of one shard from lines as dicts."""
    with RunDirectory.create_or_resume(
        path, identity={}, manifest={"num_shards": 1}, config_toml=""
    ) as run:
        run.write_table("streams", pa.Table.from_pylist(streams, schema=STREAMS))
        run.commit_shard(
            0,
            {
                "strides": pa.Table.from_pylist(strides, schema=STRIDES),
                "candidates": pa.Table.from_pylist(list(candidates), schema=CANDIDATES),
            },
        )
        run.finish()
    return path


def stream(name, text, num_tokens):
    return {
        "stream_id": name,
        "num_tokens": num_tokens,
        "num_words": len(text.split()),
        "num_spaces": text.count(" "),
        "num_bytes": len(text.encode()),
        "status": "ok" if num_tokens > 1 else "empty",
    }


def stride(name, nll, **other):
    return {
        "stream_id": name,
        "stride": -1,
        "target_begin": 1,
        "target_len": len(nll),
        "query_terms": 0,
        "retrieval_status": "warmup",
        "token_ids": [0] * len(nll),
        "baseline_nll": nll,
        "baseline_entropy": [1.0] * len(nll),
        "context_len": 1,
        "num_candidates": 0,
        "status": "ok",
        **other,
    }


def test_four_denominators_from_one_sum(tmp_path):
    """Probe 6. Fails if words, single spaces, bytes and tokens of "a  b\\nc" are mixed up."""
    nll = [1.0, 2.0, 3.0, 0.5]
    run = hand_made(tmp_path / "run", [stream("s", "a  b\nc", 5)], [stride("s", nll)])
    summary = analyze_run(run)
    divisors = {"token": 4, "word": 3, "space": 2, "byte": 6}
    for key, divisor in divisors.items():
        assert summary["perplexity"]["none"][key] == pytest.approx(math.exp(6.5 / divisor))
        assert summary["divisor"]["none"][key] == divisor
    expected = {"tokens": 4, "words": 3, "spaces": 2, "bytes": 6}
    assert expected.items() <= summary["counts"].items()


def test_empty_documents_change_no_perplexity(tmp_path):
    """Probe 1. Fails if "" and " " beside "abc" change any denominator."""
    lines = [stride("abc", [1.0, 2.0])]
    alone = hand_made(tmp_path / "alone", [stream("abc", "abc", 3)], lines)
    streams = [stream("e", "", 0), stream("b", " ", 1), stream("abc", "abc", 3)]
    more = hand_made(tmp_path / "more", streams, lines)
    one, two = analyze_run(alone), analyze_run(more)
    assert one["perplexity"] == two["perplexity"]
    assert two["counts"]["empty_streams"] == 2
    assert two["counts"]["streams"] == 3


def assert_no_nan(value):
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("lines", [[], [stride("s", [])]])
def test_a_run_without_a_scored_token_has_null_figures(tmp_path, lines):
    """Probe 2. Fails if nothing scored gives NaN, zero, or a crash."""
    run = hand_made(tmp_path / "run", [stream("s", "x", 1)], lines)
    summary = analyze_run(run)
    assert_no_nan(summary)
    assert set(summary["perplexity"]) == {"none", "first", "random", "logprob", "oracle"}
    assert all(v is None for row in summary["perplexity"].values() for v in row.values())
    assert summary["counts"]["tokens"] == 0
    write_summary(RunDirectory.open(run), summary)
    table = RunDirectory.open(run).tables("summary")
    assert table.column("value").null_count == table.num_rows


def test_without_any_hit_every_ranker_is_the_baseline(tmp_path, synthetic, write_run):
    """Probe 18. Fails if an empty index breaks a ranker or invents an oracle curve."""
    summary = analyze_run(write_run(tmp_path / "run", synthetic(no_hits=1.0)))
    rows = list(summary["perplexity"].values())
    assert all(row == rows[0] for row in rows)
    assert summary["oracle_at"] == []
    assert summary["agreement"]["first"] is None
    assert summary["retrieval"]["no_hits_share"] == 1.0
    assert summary["gain"] == {"score": [], "entropy": [], "position": []}


def test_a_run_without_rank_nll_has_no_logprob(tmp_path, synthetic, write_run):
    """Fails if a ranker that was not asked for gets a figure."""
    source = synthetic()
    source.candidates = [{**line, "rank_nll": None} for line in source.candidates]
    summary = analyze_run(write_run(tmp_path / "run", source))
    assert "logprob" not in summary["perplexity"]
    assert summary["lookback"] == []


def test_a_ranker_that_some_shards_lack_falls_back_there(tmp_path, synthetic):
    """Fails if shards with different ranker columns cannot be read together."""
    with_x, without = synthetic(rankers=("x",), no_hits=0.0), synthetic(no_hits=0.0)
    with RunDirectory.create_or_resume(
        tmp_path / "run", identity={}, manifest={}, config_toml=""
    ) as run:
        run.write_table("streams", without.stream_table())
        run.commit_shard(0, with_x.shards()[0])
        for part, tables in enumerate(without.shards()[1:], start=1):
            run.commit_shard(part, tables)
        run.finish()
    summary = analyze_run(tmp_path / "run", resamples=0)
    assert summary["perplexity"]["ranker_x"]["token"] != summary["perplexity"]["none"]["token"]


def test_an_unfinished_run_says_how_far_it_is(tmp_path, synthetic, write_run):
    """Fails if a running run is refused, or words of text not yet scored are divided by."""
    path = write_run(tmp_path / "run", synthetic(), skip={0}, finish=False)
    summary = analyze_run(path)
    planned = summary["shards"]["planned"]
    assert summary["shards"]["committed"] == planned - 1
    assert not summary["complete"]
    assert summary["perplexity"]["none"]["token"] > 1
    assert summary["perplexity"]["none"]["word"] is None
    assert summary["counts"]["words"] is None


def test_too_many_nonfinite_targets_fail_the_run(tmp_path):
    """Probe 12. Fails if NaN reaches a figure, is not counted, or passes above the limit."""
    nll = [1.0] * 998 + [math.nan, math.inf]
    lines = [stride("s", nll, status="nonfinite")]
    run = hand_made(tmp_path / "run", [stream("s", "x", 1001)], lines)
    with pytest.raises(RunError, match=r"2 of 1000 target NLLs without retrieval .* \(0.20%\)"):
        analyze_run(run)
    summary = analyze_run(run, max_nonfinite_ratio=0.002)
    assert_no_nan(summary)
    assert summary["perplexity"]["none"]["token"] == pytest.approx(math.e)
    assert summary["divisor"]["none"]["token"] == 998
    assert summary["nonfinite"]["baseline"] == 2


def test_nonfinite_candidates_count_too(tmp_path, synthetic, write_run):
    """Fails if NaNs in candidates are neither counted nor limited."""
    source = synthetic()
    values = [math.nan] * len(source.candidates[0]["target_nll"])
    source.candidates[0] |= {"target_nll": values, "status": "nonfinite"}
    path = write_run(tmp_path / "run", source)
    with pytest.raises(RunError, match="given a candidate"):
        analyze_run(path)
    assert analyze_run(path, max_nonfinite_ratio=0.5)["nonfinite"]["candidates"] == len(values)


def test_a_perplexity_beyond_float64_is_null(tmp_path):
    """Probe 11. Fails if NLLs of 6e4 (finite) overflow into a crash or an infinity."""
    run = hand_made(tmp_path / "run", [stream("s", "ab", 3)], [stride("s", [6e4, 6e4])])
    summary = analyze_run(run)
    assert_no_nan(summary)
    assert summary["perplexity"]["none"]["token"] is None
    assert summary["bits_per_byte"]["none"]["value"] == pytest.approx(6e4 / math.log(2))


def test_the_tables_and_the_json_say_the_same(tmp_path, synthetic, write_run):
    """Fails if summary.parquet and summary.json differ, or either cannot be read back."""
    path = write_run(tmp_path / "run", synthetic(rankers=("x",)))
    summary = analyze_run(path)
    write_summary(path, summary)
    assert json.loads((path / "summary.json").read_text()) == summary
    table = RunDirectory.open(path).tables("summary")
    assert table.schema.equals(SUMMARY)
    lines = {(r["metric"], r["ranker"], r["scope"], r["denominator"]): r for r in table.to_pylist()}
    assert len(lines) == table.num_rows
    for ranker, row in summary["perplexity"].items():
        for key, value in row.items():
            line = lines["perplexity", ranker, "all", key]
            assert line["value"] == value
            assert [line["low"], line["high"]] == summary["interval"][ranker][key]
            assert line["count"] == summary["divisor"][ranker][key]
    curve = [lines["oracle_at", "oracle", "all", str(d)]["value"] for d in range(1, 6)]
    assert curve == summary["oracle_at"]
    assert curve == sorted(curve, reverse=True)
    assert curve[-1] == summary["perplexity"]["oracle"]["token"]


def test_gains_by_bucket_add_up_to_the_whole_gain(tmp_path, synthetic, write_run):
    """Fails if a stride falls into no bucket or two, or a gain has the wrong sign."""
    source = synthetic(streams={"a": 400}, warmup=0, no_hits=0.0)
    summary = analyze_run(write_run(tmp_path / "run", source), resamples=0)
    mean = {r: math.log(row["token"]) for r, row in summary["perplexity"].items()}
    for buckets in summary["gain"].values():
        assert len(buckets) == 10
        total = sum(bucket["gain"]["oracle"] * bucket["tokens"] for bucket in buckets)
        expected = (mean["none"] - mean["oracle"]) * summary["counts"]["tokens"]
        assert total == pytest.approx(expected, rel=1e-5)


def test_throughput_sums_the_timing_table(tmp_path, synthetic, write_run):
    """Fails if times of shards are lost or counted twice; a run without timing has none."""
    source = synthetic()
    summary = analyze_run(write_run(tmp_path / "run", source))
    shards = summary["shards"]["planned"]
    assert summary["throughput"]["score_seconds"] == pytest.approx(1.5 * shards)
    assert summary["throughput"]["num_strides"] == len(source.strides)
    bare = hand_made(tmp_path / "bare", [stream("s", "ab", 3)], [stride("s", [1.0, 1.0])])
    assert analyze_run(bare)["throughput"] is None


def test_a_finished_run_without_its_streams_table_is_an_error(tmp_path, synthetic, write_run):
    """Fails if lost word counts show as missing figures of a sound run."""
    path = write_run(tmp_path / "run", synthetic())
    (path / "streams.parquet").unlink()
    with pytest.raises(InputError, match=r"streams\.parquet"):
        analyze_run(path)


def test_analysis_and_store_work_without_torch(tmp_path, synthetic, write_run):
    """Fails if anything on the way from a run to its summary imports torch or transformers."""
    path = write_run(tmp_path / "run", synthetic())
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'ray'):\n"
        "    sys.modules[name] = None\n"
        "from ralm_engine.ralm.analysis import analyze_run\n"
        "from ralm_engine.store.verify import verify_run\n"
        "assert verify_run(sys.argv[1]) == []\n"
        "print(analyze_run(sys.argv[1])['perplexity']['none']['token'])\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 1


def golden():
    folder = os.environ.get("RALM_SHARED") or Path(__file__).parents[2].parent / "shared"
    file = Path(folder) / "golden/reference.json"
    if not file.exists():
        pytest.skip("the shared golden numbers are not here (set RALM_SHARED)")
    return json.loads(file.read_text())


def test_the_published_code_gets_the_same_perplexities(tmp_path):
    """Fails if the sums over a real stream differ from those of the published evaluation code.

    The published code divides by all 440 tokens, the unscored first one included, and each ranker
    keeps only its chosen NLLs: they enter as three candidates in the order first, logprob, oracle.
    """
    reference = golden()
    strides = [stride("s", reference["warmup_nll"])]
    candidates = []
    names = ("first", "logprob", "oracle")
    for number, entry in enumerate(reference["strides"]):
        fields = {"stride": number, "target_begin": entry["target_begin"], "num_candidates": 3}
        strides.append(stride("s", entry["none"], **fields))
        candidates += [
            {
                "stream_id": "s",
                "stride": number,
                "rank": rank,
                "passage": rank,
                "score": 1.0,
                "passage_len": 1,
                "context_len": 1,
                "duplicate_of": -1,
                "target_nll": entry[name]["nll"],
                "rank_nll": [0.0 if name == "logprob" else 1.0],
                "status": "ok",
            }
            for rank, name in enumerate(names)
        ]
    tokens = len(reference["token_ids"])
    run = hand_made(tmp_path / "run", [stream("s", "x", tokens)], strides, candidates)
    summary = analyze_run(run, resamples=0)
    assert summary["counts"]["tokens"] == tokens - 1
    for ranker, published in reference["perplexity"].items():
        mean = math.log(summary["perplexity"][ranker]["token"]) * (tokens - 1) / tokens
        # The NLLs are stored with 5 decimals: at most 5e-6 nat a token.
        assert math.exp(mean) == pytest.approx(published, rel=2e-5)
