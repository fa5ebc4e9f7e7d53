"""The tables of one shard as arrays.

Legend: S strides, C candidate lines, K ranks, D flat list values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.errors import RunError
from ralm_engine.schema import RANKER_PREFIX, STATUS_OK, STATUS_SKIPPED
from ralm_engine.store.coverage import stride_keys
from ralm_engine.store.parquet import EVERY_RANKER

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)

NO_LINE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """A list column: row r holds values_D[begin[r] : begin[r] + length[r]]."""

    values_D: Floats
    begin: Ints
    length: Ints

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Lists:
        """Views a list column; a null row has length 0."""
        lists = _one_array(column)
        length = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)
        # `flatten` leaves out what a null covers and what lies outside a slice, unlike `values`.
        values = np.asarray(lists.flatten(), dtype=np.float32)
        return cls(values_D=values, begin=np.cumsum(length) - length, length=length)

    def sums(self) -> Floats:
        """Sum of each row's finite values. Shape [rows]; see `last_sums`."""
        return self.last_sums([None])[0]

    def last_sums(self, limits: list[int | None]) -> list[Floats]:
        """Sums over the last n finite values of each row, for every n (None: all). Each [rows].

        Values are added newest first in float64 and rounded once to float32: rows with the same
        values have the same sum wherever they stand, so that ties are ties.
        """
        order = np.argsort(-self.length, kind="stable")
        last = (self.begin + self.length - 1)[order]
        depth = int(self.length.max(initial=0))
        # Sorted by length, the rows that are longer than j come first: active[j] of them.
        active = np.searchsorted(-self.length[order], -np.arange(depth), side="left")
        finite_D = np.where(np.isfinite(self.values_D), self.values_D, np.float32(0))
        total = np.zeros(order.size, dtype=np.float64)
        sums: dict[int, Floats] = {}
        for place in range(depth + 1):
            if place in limits or place == depth:
                sums[place] = np.empty(order.size, dtype=np.float32)
                sums[place][order] = total
            if place < depth:
                rows = int(active[place])
                total[:rows] += finite_D[last[:rows] - place]
        return [sums[depth if limit is None else min(limit, depth)] for limit in limits]

    def num_bad(self) -> Ints:
        """NaNs and infinities in each row. Shape [rows]."""
        before = np.concatenate([[0], np.cumsum(~np.isfinite(self.values_D))])
        return np.asarray(before[self.begin + self.length] - before[self.begin])

    def rows(self, chosen: Mask) -> Lists:
        """The marked rows, with a copy of their values alone."""
        begin, length = self.begin[chosen], self.length[chosen]
        new_begin = np.cumsum(length) - length
        index = np.repeat(begin - new_begin, length) + np.arange(int(length.sum()))
        return Lists(values_D=self.values_D[index], begin=new_begin, length=length)

    def pieces(self, size: int) -> tuple[Lists, Ints]:
        """Cuts every row into pieces of at most `size` values.

        Returns:
            The pieces in order, and the row each comes from.
        """
        count = -(-self.length // size)
        row = np.repeat(np.arange(count.size), count)
        offset = (np.arange(row.size) - (np.cumsum(count) - count)[row]) * size
        length = np.minimum(self.length[row] - offset, size)
        return Lists(values_D=self.values_D, begin=self.begin[row] + offset, length=length), row


@dataclass(frozen=True, slots=True, kw_only=True)
class StrideColumns:
    """The strides of a shard, as they stand in the table.

    Attributes:
        stream_names: stream id of each code.
        stream_S: code of each line's stream.
        stride_S: stride number; WARMUP_STRIDE for a warm-up pass.
        begin_S: token index of the first target.
        length_S: targets; 0 where skipped.
        retrieval_status: as it is stored [S].
        baseline: NLL of each target without retrieval.
        baseline_nll_S: sum over the finite ones.
        baseline_bad_S: targets whose NLL is NaN or infinite.
        entropy_S: mean baseline entropy of the targets; 0 without one.
    """

    stream_names: list[str]
    stream_S: Ints
    stride_S: Ints
    begin_S: Ints
    length_S: Ints
    retrieval_status: pa.Array
    baseline: Lists
    baseline_nll_S: Floats
    baseline_bad_S: Ints
    entropy_S: Floats

    COLUMNS = (
        "stream_id",
        "stride",
        "target_begin",
        "target_len",
        "retrieval_status",
        "baseline_nll",
        "baseline_entropy",
        "num_candidates",
        "status",
    )

    @classmethod
    def of(cls, table: pa.Table) -> StrideColumns:
        """Reads a `strides` table.

        Raises:
            RunError: a baseline_nll is not target_len long.
        """
        stream = _one_array(table.column("stream_id")).dictionary_encode()
        skipped_S = _equals(table, "status", STATUS_SKIPPED)
        length_S = np.where(skipped_S, 0, _ints(table, "target_len"))
        baseline = Lists.of(table.column("baseline_nll"))
        if np.any(baseline.length[~skipped_S] != length_S[~skipped_S]):
            raise _broken("a baseline_nll is not target_len long")
        baseline = Lists(values_D=baseline.values_D, begin=baseline.begin, length=length_S)
        entropy = Lists.of(table.column("baseline_entropy"))
        return cls(
            stream_names=stream.dictionary.to_pylist(),
            stream_S=np.asarray(stream.indices, dtype=np.int64),
            stride_S=_ints(table, "stride"),
            begin_S=_ints(table, "target_begin"),
            length_S=length_S,
            retrieval_status=_one_array(table.column("retrieval_status")),
            baseline=baseline,
            baseline_nll_S=baseline.sums(),
            baseline_bad_S=baseline.num_bad(),
            entropy_S=np.asarray(entropy.sums() / np.maximum(entropy.length, 1), dtype=np.float32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateColumns:
    """The candidates of a shard.

    Attributes:
        line_SK: candidate line of each stride and rank; NO_LINE where there is none.
        rank_C: rank of each line.
        usable_C: scored, and finite in every target: may be chosen.
        target_nll_C: NLL sum over the targets.
        target_len_C: targets of each line.
        target_bad_C: targets whose NLL is NaN or infinite.
        score_C: retrieval score.
        duplicate_C: same text as a better ranked candidate of the stride.
        rank_nll: NLLs of the last prefix tokens, oldest first.
        has_rank_nll_C: whether rank_nll was asked for, and is finite.
        rankers: scores of each extra ranker [C], higher is better.
    """

    line_SK: Ints
    rank_C: Ints
    usable_C: Mask
    target_nll_C: Floats
    target_len_C: Ints
    target_bad_C: Ints
    score_C: Floats
    duplicate_C: Mask
    rank_nll: Lists
    has_rank_nll_C: Mask
    rankers: dict[str, Floats]

    COLUMNS = (
        "stream_id",
        "stride",
        "rank",
        "score",
        "duplicate_of",
        "target_nll",
        "rank_nll",
        "status",
        EVERY_RANKER,
    )

    @classmethod
    def of(cls, strides: pa.Table, table: pa.Table) -> CandidateColumns:
        """Reads a `candidates` table against its strides; lines may stand in any order.

        Raises:
            RunError: lines without their stride, two of one rank, lost lines, or lists of the
                wrong length.
        """
        stride_C = _strides_of(strides, table)
        ok_C = _equals(table, "status", STATUS_OK)
        length_C = _ints(strides, "target_len")[stride_C]
        skipped_C = _equals(strides, "status", STATUS_SKIPPED)[stride_C]
        target, rank_nll = Lists.of(table.column("target_nll")), Lists.of(table.column("rank_nll"))
        if np.any(target.length[ok_C] != length_C[ok_C]):
            raise _broken("a target_nll is not target_len long")
        bad_C = target.num_bad()
        given_C = np.asarray(table.column("rank_nll").is_valid(), dtype=bool)
        names = [name for name in table.column_names if name.startswith(RANKER_PREFIX)]
        return cls(
            line_SK=_line_of_rank(strides.num_rows, stride_C, _ints(table, "rank")),
            rank_C=_ints(table, "rank"),
            usable_C=ok_C & (bad_C == 0) & ~skipped_C,
            target_nll_C=target.sums(),
            target_len_C=target.length,
            target_bad_C=bad_C,
            score_C=_floats(table, "score"),
            duplicate_C=_ints(table, "duplicate_of") >= 0,
            rank_nll=rank_nll,
            has_rank_nll_C=given_C & (rank_nll.num_bad() == 0),
            rankers={name: _floats(table, name) for name in names},
        )

    def spread(self, values_C: npt.NDArray[_Scalar], *, fill: _Scalar) -> npt.NDArray[_Scalar]:
        """Values of candidate lines as [S, K], with `fill` where there is no line."""
        return np.append(values_C, fill)[self.line_SK]


def _strides_of(strides: pa.Table, candidates: pa.Table) -> Ints:
    """The line of each candidate's stride in the strides table. Shape [C]."""
    key_S, key_C = stride_keys(strides, candidates)
    order = np.argsort(key_S, kind="stable")
    place = np.searchsorted(key_S, key_C, sorter=order)
    if key_C.size and (not key_S.size or np.any(place >= key_S.size)):
        raise _broken("candidates without their stride")
    stride_C = order[place]
    if np.any(key_S[stride_C] != key_C):
        raise _broken("candidates without their stride")
    count_S = np.bincount(stride_C, minlength=key_S.size)
    if np.any(count_S != _ints(strides, "num_candidates")):
        raise _broken("a stride has more or fewer candidate lines than its num_candidates")
    return stride_C


def _line_of_rank(num_strides: int, stride_C: Ints, rank_C: Ints) -> Ints:
    line_SK = np.full((num_strides, int(rank_C.max(initial=-1)) + 1), NO_LINE, dtype=np.int64)
    line_SK[stride_C, rank_C] = np.arange(rank_C.size)
    if np.count_nonzero(line_SK != NO_LINE) != rank_C.size:
        raise _broken("two candidates of a stride have the same rank")
    return line_SK


def _broken(what: str) -> RunError:
    return RunError(f"the run is damaged: {what}", hint="`ralm-engine verify` tells where")


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    merged = column.combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def _equals(table: pa.Table, column: str, value: str) -> Mask:
    return np.asarray(pc.equal(table.column(column), value), dtype=bool)


def _ints(table: pa.Table, column: str) -> Ints:
    return np.asarray(table.column(column), dtype=np.int64)


def _floats(table: pa.Table, column: str) -> Floats:
    return np.asarray(table.column(column), dtype=np.float32)
