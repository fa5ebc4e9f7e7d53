"""Warm-up, strides, left cut, shards: positions only, no model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralm_engine.errors import InputError
from ralm_engine.ralm.config import WindowConfig
from ralm_engine.ralm.rows import BASELINE, DocumentFirst, Line, StreamBlock
from ralm_engine.ralm.shards import cut_shards
from ralm_engine.ralm.windows import Windows
from ralm_engine.schema import WARMUP_STRIDE


def windows(
    *, max_length: int = 1024, passage: int = 256, stride: int = 4, lookback: int = 16,
    warmup: str = "reference", slack: int = 0, num_bos: int = 0,
) -> Windows:  # fmt: skip
    cfg = WindowConfig(
        max_length=max_length, max_passage_length=passage, warmup=warmup, context_slack=slack
    )
    return Windows(cfg=cfg, stride=stride, lookback=lookback, num_bos=num_bos)


@pytest.mark.parametrize("num_tokens", range(1023, 1030))
@pytest.mark.parametrize("warmup", ["reference", "none"])
def test_every_token_but_the_first_is_a_target_once(num_tokens: int, warmup: str) -> None:
    """Probe 4: fails when a length around the window edge loses or doubles a token."""
    w = windows(warmup=warmup)
    targets = list(range(1, w.warmup_end(num_tokens)))
    for stride in range(w.num_strides(num_tokens)):
        t, end = w.span(stride, num_tokens)
        targets += [p for p in range(t, end) if p > 0]
    assert targets == list(range(1, num_tokens))


@pytest.mark.parametrize(("num_tokens", "strides"), [(0, 0), (1, 0), (2, 0), (1024, 0), (1025, 1)])
def test_streams_within_the_warmup_have_no_stride(num_tokens: int, strides: int) -> None:
    """Probes 1-3: fails when a short stream gets a stride, or a one-token stream a target."""
    assert windows().num_strides(num_tokens) == strides


def test_the_cut_leaves_room_for_passage_and_nominal_stride() -> None:
    """Published policy: c = max(0, t + s - (max_length - |passage|)), worked by hand."""
    w = windows()
    assert w.left_cut(1024, 0) == 4
    assert w.left_cut(1024, 100) == 104
    assert w.left_cut(700, 256) == 0
    assert windows(num_bos=1).left_cut(1024, 100) == 105


def test_a_window_without_room_is_refused() -> None:
    """Fails when passage, stride, lookback and slack may fill a row with nothing left to read."""
    windows(max_length=256 + 4 + 16 + 1)
    with pytest.raises(InputError, match=r"max_length = 276 leaves 20 .* need 21"):
        windows(max_length=256 + 4 + 16)
    with pytest.raises(InputError, match="context_slack 8 need 29"):
        windows(max_length=256 + 4 + 16 + 1, slack=8)


@settings(max_examples=200)
@given(
    lengths=st.lists(st.integers(0, 80), max_size=12),
    shard_strides=st.integers(1, 20),
    warmup=st.sampled_from(["reference", "none"]),
)
def test_shards_hold_every_stride_and_warmup_once_in_order(
    lengths: list[int], shard_strides: int, warmup: str
) -> None:
    """Fails when cutting loses, doubles or reorders work, or a shard grows beyond its size."""
    w = windows(max_length=30, passage=8, lookback=4, warmup=warmup)
    shards = cut_shards(lengths, w, shard_strides=shard_strides)
    assert [shard.part for shard in shards] == list(range(len(shards)))
    found = [
        (span.stream, j)
        for shard in shards
        for span in shard.spans
        for j in [
            *([WARMUP_STRIDE] if span.warmup else []),
            *range(span.first_stride, span.first_stride + span.num_strides),
        ]
    ]
    expected = [
        (stream, j)
        for stream, n in enumerate(lengths)
        for j in [
            *([WARMUP_STRIDE] if w.warmup_end(n) >= 2 else []),
            *range(w.num_strides(n)),
        ]
    ]
    assert found == expected
    assert all(shard.num_strides <= shard_strides for shard in shards)


def block_of(w: Windows, tokens: np.ndarray) -> StreamBlock:
    return StreamBlock(
        stream_id="s", num_tokens=tokens.size, token_base=0, tokens=tokens, first_stride=0,
        num_strides=w.num_strides(tokens.size), warmup=False,
    )  # fmt: skip


def line_passage(line: Line, passages: list[list[np.ndarray]]) -> np.ndarray:
    if line.rank == BASELINE:
        return np.zeros(0, dtype=np.int32)
    return passages[line.stride][line.rank]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    slack=st.integers(0, 9),
    warmup=st.sampled_from(["reference", "none"]),
    num_bos=st.integers(0, 1),
)
def test_rows_hold_what_the_formula_says(seed: int, slack: int, warmup: str, num_bos: int) -> None:
    """Every want, followed back through its row, predicts the right token from the right prefix.

    The slow twin is the formula: [bos; passage; stream tokens c..t+s), c of this stride, and at
    most `slack` fewer tokens where strides share a row.
    """
    rng = np.random.default_rng(seed)
    w = windows(
        max_length=32, passage=9, stride=3, lookback=4, warmup=warmup, slack=slack, num_bos=num_bos
    )
    tokens = np.arange(1000, 1000 + int(rng.integers(2, 70)), dtype=np.int32)
    block = block_of(w, tokens)
    pool = [np.arange(n, dtype=np.int32) for n in (1, 4, 9, 0)]
    passages = [
        [pool[i] for i in rng.permutation(4)[: rng.integers(0, 5)]]
        for _ in range(block.num_strides)
    ]
    bos = 7 if num_bos else None
    layout = DocumentFirst(w, bos=bos)
    layout.add_block(block, passages)
    rows = layout.build()
    requests, lines = rows.requests, rows.lines
    assert rows.rows == len(lines)
    assert rows.tokens == sum(
        num_bos
        + line_passage(line, passages).size
        + line.target_end
        - 1
        - w.left_cut(w.span(line.stride, tokens.size)[0], line_passage(line, passages).size)
        for line in lines
    )
    assert len(lines) == sum(1 + len(p) for p in passages)
    for line in lines:
        t, end = w.span(line.stride, tokens.size)
        passage = pool[3] if line.rank == BASELINE else passages[line.stride][line.rank]
        exact_cut = w.left_cut(t, passage.size)
        cut = line.target_begin - line.context_len
        assert exact_cut <= cut <= exact_cut + slack
        assert (line.target_begin, line.target_end) == (max(1, t), end)
        wants = [
            *range(line.lookback_want, line.lookback_want + line.lookback_len),
            *range(line.target_want, line.target_want + line.target_end - line.target_begin),
        ]
        low = line.target_begin if line.rank == BASELINE else max(1, t - w.lookback)
        positions = [*range(low, low + line.lookback_len), *range(line.target_begin, end)]
        for want, position in zip(wants, positions, strict=True):
            leaf = int(requests.owner_W[want])
            head = [requests.tokens(s) for s in requests.sees(leaf).tolist()]
            offset = int(requests.predictor_offset_W[want])
            seen = np.concatenate([*head, requests.tokens(leaf)[: offset + 1]])
            expected = [*[7] * num_bos, *passage.tolist(), *tokens[cut:position].tolist()]
            assert seen.tolist() == expected
            assert requests.target_W[want] == tokens[position]
    assert requests.row_lengths_S().max(initial=0) < w.cfg.max_length


def test_an_empty_passage_beside_the_baseline_keeps_its_lookback() -> None:
    """Fails when a merged row is cut for the baseline, which ranks nothing, only.

    A block that begins within the first window, slack, and candidates without tokens.
    """
    w = windows(max_length=40, passage=0, stride=4, lookback=8, warmup="none", slack=16)
    tokens = np.arange(80, dtype=np.int32) + 100
    empty = np.zeros(0, dtype=np.int32)
    block = StreamBlock(
        stream_id="s", num_tokens=80, token_base=0, tokens=tokens, first_stride=3,
        num_strides=w.num_strides(80) - 3, warmup=False,
    )  # fmt: skip
    layout = DocumentFirst(w)
    layout.add_block(block, [[empty]] * block.num_strides)
    rows = layout.build()
    for line in rows.lines:
        for want in range(line.lookback_want, line.lookback_want + line.lookback_len):
            leaf = int(rows.requests.owner_W[want])
            predictor = rows.requests.tokens(leaf)[rows.requests.predictor_offset_W[want]]
            assert predictor + 1 == rows.requests.target_W[want]


def test_short_documents_share_rows_exactly_without_slack() -> None:
    """Fails when strides whose rows are not cut at all are scored in rows of their own."""
    w = windows(max_length=64, passage=9, stride=3, lookback=4, warmup="none")
    tokens = np.arange(40, dtype=np.int32) + 100
    block = block_of(w, tokens)
    layout = DocumentFirst(w)
    layout.add_block(block, [[np.arange(5, dtype=np.int32)]] * block.num_strides)
    requests = layout.build().requests
    assert requests.leaves().size == 2  # one row without and one with the passage


def test_equal_passages_are_one_row() -> None:
    """Probe 22: fails when duplicates are scored twice, which rounding could tell apart."""
    w = windows(max_length=64, passage=9, stride=3, lookback=4)
    tokens = np.arange(67, dtype=np.int32) + 100
    block = block_of(w, tokens)
    layout = DocumentFirst(w)
    layout.add_block(block, [[np.arange(5, dtype=np.int32)] * 3])
    rows = layout.build()
    requests, lines = rows.requests, rows.lines
    assert requests.leaves().size == 2
    assert len({line.target_want for line in lines if line.rank != BASELINE}) == 1
