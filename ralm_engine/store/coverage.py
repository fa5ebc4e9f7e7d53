"""Do the tables agree: strides with their candidates, and streams with their strides?

Legend: S strides, C candidates, T target spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.schema import STATUS_OK, STATUS_SKIPPED

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def stride_keys(strides: pa.Table, candidates: pa.Table) -> tuple[Ints, Ints]:
    """One number per (stream_id, stride), equal in both tables where the pair is equal.

    Returns:
        Keys of the strides [S] and of the candidates [C].
    """
    ids = pa.chunked_array(
        strides.column("stream_id").chunks + candidates.column("stream_id").chunks, pa.string()
    )
    encoded = ids.combine_chunks().dictionary_encode()
    code = np.asarray(encoded.indices, dtype=np.int64)
    numbers = [
        np.asarray(table.column("stride"), dtype=np.int64) for table in (strides, candidates)
    ]
    # Stride numbers are int32 from -1 on: 32 bits hold them, and the stream stands above.
    keys = (code << 32) + (np.concatenate(numbers) + 1)
    return keys[: strides.num_rows], keys[strides.num_rows :]


def list_lengths(column: pa.ChunkedArray) -> Ints:
    """Length of every list; 0 for a null."""
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)


def all_finite(column: pa.ChunkedArray) -> Mask:
    """Whether every value of each list is finite; true for an empty list or a null."""
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    bad = ~np.isfinite(np.asarray(lists.flatten()))
    ends = np.cumsum(list_lengths(column))
    before = np.concatenate([[0], np.cumsum(bad)])
    begins = np.concatenate([[0], ends[:-1]]) if ends.size else ends
    return np.asarray(before[ends] == before[begins])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """Both tables of a shard, with the stride of every candidate."""

    strides: pa.Table
    candidates: pa.Table
    orphan_C: Mask
    stride_C: Ints

    @classmethod
    def of(cls, strides: pa.Table, candidates: pa.Table) -> _Shard:
        key_S, key_C = stride_keys(strides, candidates)
        order = np.argsort(key_S, kind="stable")
        place = np.minimum(np.searchsorted(key_S, key_C, sorter=order), key_S.size - 1)
        stride_C = order[place]
        return cls(
            strides=strides,
            candidates=candidates,
            orphan_C=key_S[stride_C] != key_C,
            stride_C=stride_C,
        )


def shard_problems(label: str, strides: pa.Table, candidates: pa.Table) -> Iterator[str]:
    """What does not fit between the strides and candidates of one shard, one line a kind."""
    if not strides.num_rows:
        if candidates.num_rows:
            yield f"{label}: {candidates.num_rows} candidate lines, but no stride"
        return
    shard = _Shard.of(strides, candidates)
    for text, bad in _bad_strides(shard):
        yield from _first_of(label, text, strides, bad)
    for text, bad in _bad_candidates(shard):
        yield from _first_of(label, text, candidates, bad)


def _bad_strides(shard: _Shard) -> Iterator[tuple[str, Mask]]:
    table = shard.strides
    count_S = np.bincount(shard.stride_C[~shard.orphan_C], minlength=table.num_rows)
    expected_S = np.asarray(table.column("num_candidates"), dtype=np.int64)
    yield "strides have more or fewer candidate lines than num_candidates", count_S != expected_S
    length_S = np.asarray(table.column("target_len"), dtype=np.int64)
    scored_S = _status_differs(table, STATUS_SKIPPED)
    for name in ("token_ids", "baseline_nll", "baseline_entropy"):
        differs = list_lengths(table.column(name)) != length_S
        yield f"strides have {name} of another length than target_len", scored_S & differs
    called_ok_S = ~_status_differs(table, STATUS_OK)
    finite_S = all_finite(table.column("baseline_nll"))
    yield "strides are called ok in spite of a NaN or infinity", called_ok_S & ~finite_S


def _bad_candidates(shard: _Shard) -> Iterator[tuple[str, Mask]]:
    table, known_C = shard.candidates, ~shard.orphan_C
    yield "candidate lines belong to no stride", shard.orphan_C
    ranked_C = _ranks_follow(shard.stride_C, table)
    yield "candidate lines break the ranks 0, 1, 2, ... of their stride", known_C & ~ranked_C
    length_S = np.asarray(shard.strides.column("target_len"), dtype=np.int64)
    scored_C = known_C & _status_differs(table, STATUS_SKIPPED)
    differs = list_lengths(table.column("target_nll")) != length_S[shard.stride_C]
    yield "candidate lines have target_nll of another length than target_len", scored_C & differs
    called_ok_C = ~_status_differs(table, STATUS_OK)
    finite_C = all_finite(table.column("target_nll"))
    yield "candidate lines are called ok in spite of a NaN or infinity", called_ok_C & ~finite_C


def _status_differs(table: pa.Table, status: str) -> Mask:
    return np.asarray(pc.not_equal(table.column("status"), status), dtype=bool)


def _ranks_follow(stride_C: Ints, candidates: pa.Table) -> Mask:
    """Whether each line's rank is its place among the sorted ranks of its stride."""
    rank_C = np.asarray(candidates.column("rank"), dtype=np.int64)
    order = np.lexsort((rank_C, stride_C))
    begins = np.searchsorted(stride_C[order], stride_C[order])
    good = np.empty(rank_C.size, dtype=bool)
    good[order] = rank_C[order] == np.arange(rank_C.size) - begins
    return good


def _first_of(label: str, text: str, table: pa.Table, bad: Mask) -> Iterator[str]:
    rows = np.flatnonzero(bad)
    if rows.size:
        line = table.slice(int(rows[0]), 1)
        where = f'stream "{line.column("stream_id")[0]}" stride {line.column("stride")[0]}'
        yield f"{label}: {rows.size} {text}, first: {where}"


@dataclass(slots=True)
class Coverage:
    """Collects the target spans of all shards and finds gaps and overlaps."""

    _tables: list[pa.Table] = field(default_factory=list)

    def add(self, strides: pa.Table) -> None:
        """Notes the spans of one shard."""
        self._tables.append(strides.select(["stream_id", "target_begin", "target_len"]))

    def problems(self, streams: pa.Table, *, finished: bool) -> Iterator[str]:
        """Compares the spans with the streams.

        The first token of a stream may be scored (with a BOS before it) or not; every other one
        must be scored exactly once.

        Args:
            streams: columns stream_id and num_tokens.
            finished: whether gaps are errors.

        Yields:
            One line per stream and kind of problem.
        """
        names = streams.column("stream_id").to_pylist()
        tokens = np.asarray(streams.column("num_tokens"), dtype=np.int64)
        stream_T, begin_T, end_T, unknown = self._spans(streams.column("stream_id"))
        for name in unknown:
            yield f'stream "{name}" has strides, but is not in the streams table'
        previous_T, starts = _end_before(stream_T, end_T)
        yield from _span_problem(
            names, stream_T, begin_T, previous_T, begin_T < previous_T, "are scored twice"
        )
        past = end_T > tokens[stream_T]
        yield from _span_problem(
            names, stream_T, tokens[stream_T], end_T, past, "lie past the end of the stream"
        )
        if not finished:
            return
        gap = (begin_T > previous_T) & ~(starts & (begin_T == 1))
        first_T = np.where(starts, 1, previous_T)
        yield from _span_problem(names, stream_T, first_T, begin_T, gap, "are scored by no stride")
        last = np.ones(tokens.size, dtype=np.int64)
        np.maximum.at(last, stream_T, end_T)
        every = np.arange(tokens.size)
        yield from _span_problem(
            names, every, last, tokens, last < tokens, "are scored by no stride"
        )

    def _spans(self, known: pa.ChunkedArray) -> tuple[Ints, Ints, Ints, list[str]]:
        """Stream row, begin and end of every span that is not empty, sorted; unknown streams."""
        if not self._tables:
            empty = np.empty(0, dtype=np.int64)
            return empty, empty, empty, []
        spans = pa.concat_tables(self._tables)
        row = pc.index_in(spans.column("stream_id"), value_set=known.combine_chunks())
        unknown = pc.unique(spans.column("stream_id").filter(pc.is_null(row))).to_pylist()
        stream = np.asarray(pc.fill_null(row, -1), dtype=np.int64)
        begin = np.asarray(spans.column("target_begin"), dtype=np.int64)
        length = np.asarray(spans.column("target_len"), dtype=np.int64)
        keep = np.flatnonzero((stream >= 0) & (length > 0))
        keep = keep[np.lexsort((begin[keep], stream[keep]))]
        return stream[keep], begin[keep], begin[keep] + length[keep], unknown


def _end_before(stream_T: Ints, end_T: Ints) -> tuple[Ints, Mask]:
    """The furthest end of the spans before each one in its stream (0 for the first of a stream)."""
    starts = np.ones(stream_T.size, dtype=bool)
    starts[1:] = stream_T[1:] != stream_T[:-1]
    # A running maximum over all streams at once: each stream is lifted above the one before.
    lift = stream_T * (int(end_T.max(initial=0)) + 1)
    running = np.maximum.accumulate(end_T + lift)
    previous = np.zeros_like(end_T)
    previous[1:] = running[:-1] - lift[1:]
    return np.where(starts, 0, previous), starts


def _span_problem(
    names: list[str], stream: Ints, begin: Ints, end: Ints, bad: Mask, text: str
) -> Iterator[str]:
    rows = np.flatnonzero(bad)
    streams, first = np.unique(stream[rows], return_index=True)
    for number, place in zip(streams.tolist(), rows[first].tolist(), strict=True):
        yield (
            f'stream "{names[number]}": tokens {int(begin[place])}..{int(end[place]) - 1} {text}'
        )
