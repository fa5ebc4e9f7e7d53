"""One retrieved shard -> rows -> token NLLs -> the lines of every table."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.lm.cost import CostModel
from ralm_engine.lm.packing import PackPlan
from ralm_engine.lm.requests import Int32Array, Requests, Scores
from ralm_engine.lm.scorer import Scorer
from ralm_engine.ralm.retrieve import RetrievedBlock, RetrievedShard
from ralm_engine.ralm.rows import BASELINE, DocumentFirst, LaidOut, Line
from ralm_engine.ralm.windows import Windows
from ralm_engine.retrieval.protocol import RetrievalStatus
from ralm_engine.schema import (
    CANDIDATES,
    STATUS_NONFINITE,
    STATUS_OK,
    STRIDES,
    TIMING,
    WARMUP_STRIDE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredShard:
    """The committed content of one shard, one Arrow table per table name."""

    part: int
    tables: dict[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScorer:
    """Scores whole shards.

    Attributes:
        scorer: the frozen model.
        windows: the job's windows.
        bos: token before every row, or None.
        merge: whether strides may share rows, see `DocumentFirst`.
        cost: floating-point operations of the forwards.
    """

    scorer: Scorer
    windows: Windows
    bos: int | None
    merge: bool
    cost: CostModel

    def score(self, shard: RetrievedShard) -> ScoredShard:
        """Lays out, scores and tabulates one shard."""
        began = time.perf_counter()
        rows = lay_out(shard, self.windows, self.bos, merge=self.merge)
        plan = self.scorer.plan(rows.requests)
        scores = self.scorer.run(rows.requests, plan)
        strides, candidates = tabulate(shard, rows, scores)
        timing = self._timing(shard, rows, plan, time.perf_counter() - began)
        return ScoredShard(
            part=shard.part,
            tables={"strides": strides, "candidates": candidates, "timing": timing},
        )

    def _timing(
        self, shard: RetrievedShard, rows: LaidOut, plan: PackPlan, seconds: float
    ) -> pa.Table:
        flop = self.cost.flop(tokens=plan.tokens_forwarded, pairs=plan.attended, wants=plan.wants)
        line = {
            "part": shard.part,
            "num_strides": sum(b.block.num_strides for b in shard.blocks),
            "rows": rows.rows,
            "rows_forwarded": plan.rows,
            "tokens_asked": rows.tokens,
            "tokens_forwarded": plan.tokens_forwarded,
            "batches": len(plan.batches),
            "retrieve_seconds": shard.seconds,
            "score_seconds": seconds,
            "flop": flop,
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "worker": f"{socket.gethostname()}:{os.getpid()}",
            "finished_at": time.time(),
        }
        return pa.Table.from_pylist([line], schema=TIMING)


def lay_out(
    shard: RetrievedShard, windows: Windows, bos: int | None, *, merge: bool = True
) -> LaidOut:
    """Candidates -> rows -> segments, for all strides of a shard."""
    layout = DocumentFirst(windows, bos=bos, merge=merge)
    for found in shard.blocks:
        block = found.block
        if block.warmup:
            layout.add_warmup(
                block,
                warmup_end=windows.warmup_end(block.num_tokens),
                line_stride=WARMUP_STRIDE,
            )
        layout.add_block(block, _passages(found, shard.passage_tokens))
    return layout.build()


def tabulate(shard: RetrievedShard, rows: LaidOut, scores: Scores) -> tuple[pa.Table, pa.Table]:
    """Token NLLs -> the strides and candidates tables of a shard."""
    baselines = [line for line in rows.lines if line.rank == BASELINE]
    candidates = [line for line in rows.lines if line.rank != BASELINE]
    return (
        _strides_table(shard, rows.requests, baselines, scores),
        _candidates_table(shard, candidates, scores),
    )


def _passages(found: RetrievedBlock, tokens: dict[int, Int32Array]) -> list[list[Int32Array]]:
    if found.candidates is None:
        return []
    return [
        [tokens[row] for row in rows[:count].tolist()]
        for rows, count in zip(
            found.candidates.passage_QK, found.candidates.count_Q.tolist(), strict=True
        )
    ]


def _strides_table(
    shard: RetrievedShard, requests: Requests, lines: Sequence[Line], scores: Scores
) -> pa.Table:
    spans = [(line.target_want, line.target_end - line.target_begin) for line in lines]
    nll = _lists(scores.nll_W, spans)
    found = [_of_stride(shard, line) for line in lines]
    columns = {
        "stream_id": [shard.blocks[line.block].block.stream_id for line in lines],
        "stride": [line.stride for line in lines],
        "target_begin": [line.target_begin for line in lines],
        "target_len": [line.target_end - line.target_begin for line in lines],
        "query_terms": [terms for terms, _, _ in found],
        "retrieval_status": [status for _, status, _ in found],
        "token_ids": _lists(requests.target_W, spans),
        "baseline_nll": nll,
        "baseline_entropy": _lists(scores.entropy_W, spans),
        "context_len": [line.context_len for line in lines],
        "num_candidates": [count for _, _, count in found],
        "status": _statuses(_finite(scores.nll_W, spans)),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in STRIDES], schema=STRIDES)


def _candidates_table(shard: RetrievedShard, lines: Sequence[Line], scores: Scores) -> pa.Table:
    spans = [(line.target_want, line.target_end - line.target_begin) for line in lines]
    lookback = [(line.lookback_want, line.lookback_len) for line in lines]
    passage, score, duplicate_of = _retrieved(shard, lines)
    finite = _finite(scores.nll_W, spans) & _finite(scores.nll_W, lookback)
    columns = {
        "stream_id": [shard.blocks[line.block].block.stream_id for line in lines],
        "stride": [line.stride for line in lines],
        "rank": [line.rank for line in lines],
        "passage": passage,
        "score": score,
        "passage_len": [shard.passage_tokens[row].size for row in passage],
        "context_len": [line.context_len for line in lines],
        "duplicate_of": duplicate_of,
        "target_nll": _lists(scores.nll_W, spans),
        "rank_nll": _lists(scores.nll_W, lookback),
        "target_entropy": _lists(scores.entropy_W, spans),
        "target_rank": _lists(scores.rank_W, spans),
        "status": _statuses(finite),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in CANDIDATES], schema=CANDIDATES)


def _of_stride(shard: RetrievedShard, line: Line) -> tuple[int, str, int]:
    """Query words, retrieval status and number of candidates of a baseline line."""
    found = shard.blocks[line.block]
    if line.stride == WARMUP_STRIDE or found.candidates is None:
        return 0, "warmup", 0
    j = line.stride - found.block.first_stride
    status = RetrievalStatus(int(found.candidates.status_Q[j])).name.lower()
    return found.query_terms[j], status, int(found.candidates.count_Q[j])


def _retrieved(
    shard: RetrievedShard, lines: Sequence[Line]
) -> tuple[list[int], list[float], list[int]]:
    """Passage row, score and lowest rank with the same text, of each candidate line."""
    passages, scores, duplicates = [], [], []
    first_rank: dict[int, int] = {}
    stride = (-1, -1)
    for line in lines:
        if (line.block, line.stride) != stride:
            stride, first_rank = (line.block, line.stride), {}
        found = shard.blocks[line.block]
        assert found.candidates is not None
        j = line.stride - found.block.first_stride
        row = int(found.candidates.passage_QK[j, line.rank])
        first = first_rank.setdefault(shard.duplicate_of.get(row, row), line.rank)
        passages.append(row)
        scores.append(float(found.candidates.score_QK[j, line.rank]))
        duplicates.append(first if first != line.rank else -1)
    return passages, scores, duplicates


def _lists(values: npt.NDArray[np.generic], spans: Sequence[tuple[int, int]]) -> pa.ListArray:
    """One list per (first want, number of wants) span."""
    lengths = np.asarray([length for _, length in spans], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = _flat(values, spans)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(flat, kind),
        type=pa.list_(pa.field("item", kind, nullable=False)),
    )


def _flat(
    values: npt.NDArray[np.generic], spans: Iterable[tuple[int, int]]
) -> npt.NDArray[np.generic]:
    parts = [values[begin : begin + length] for begin, length in spans]
    return np.concatenate(parts) if parts else values[:0]


def _finite(
    values: npt.NDArray[np.float32], spans: Sequence[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    return np.asarray([np.isfinite(values[b : b + n]).all() for b, n in spans], dtype=np.bool_)


def _statuses(finite: npt.NDArray[np.bool_]) -> list[str]:
    return [STATUS_OK if ok else STATUS_NONFINITE for ok in finite.tolist()]
