"""Strides and candidates -> rows -> segments (layout document_first), merged under slack.

One row per (passage, group of strides): [passage; stream tokens c..e-1), where e is the end of the
group's last target (the last target predicts nothing, so it is not forwarded). The baseline is the
row of the empty passage. Rows whose passages have equal tokens are one row.

Legend: J strides, K candidates a stride, L candidate lines (baseline included).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ralm_engine.lm.builder import RequestBuilder
from ralm_engine.lm.requests import Int32Array, Requests
from ralm_engine.ralm.windows import Windows

BASELINE = -1
"""Rank of the baseline row of a stride."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBlock:
    """Consecutive strides of one stream, as one shard sees them.

    Attributes:
        stream_id: name of the stream.
        num_tokens: tokens of the whole stream.
        token_base: stream index of tokens[0]; the block holds all context its rows need.
        tokens: stream tokens token_base ... end of the last target.
        first_stride: number of the block's first stride.
        num_strides: J.
        warmup: whether the block also scores the stream's warm-up pass.
    """

    stream_id: str
    num_tokens: int
    token_base: int
    tokens: Int32Array
    first_stride: int
    num_strides: int
    warmup: bool

    def slice(self, begin: int, end: int) -> Int32Array:
        """Stream tokens begin..end."""
        return self.tokens[begin - self.token_base : end - self.token_base]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where the answers of one (stride, rank) stand in the wants.

    Attributes:
        block: number of the stream block.
        stride: stride number, or schema.WARMUP_STRIDE.
        rank: candidate rank, or BASELINE.
        target_begin, target_end: scored targets, stream positions.
        context_len: stream tokens the row holds before target_begin.
        target_want: want of the first target.
        lookback_want, lookback_len: wants of the last prefix tokens; none for the baseline.
    """

    block: int
    stride: int
    rank: int
    target_begin: int
    target_end: int
    context_len: int
    target_want: int
    lookback_want: int
    lookback_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """The rows of a shard.

    Attributes:
        requests: what the scorer is asked.
        lines: where the answers stand, ordered by block, stride and rank.
        rows: rows asked for: one a candidate, one a stride without retrieval, one a warm-up.
        tokens: tokens of all of these, before any of them share anything.
    """

    requests: Requests
    lines: list[Line]
    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Use:
    """A passage at a stride."""

    stride: int
    rank: int
    t: int
    end: int
    cut: int


class DocumentFirst:
    """Lays out the rows of a shard, block by block.

    Args:
        windows: the job's windows.
        bos: token before every row, or None.
        merge: whether strides may share rows. What shares a row depends on where shards begin, so
            deterministic jobs do without.
    """

    def __init__(self, windows: Windows, *, bos: int | None = None, merge: bool = True) -> None:
        self._merge = merge
        self._windows = windows
        self._bos = np.asarray([] if bos is None else [bos], dtype=np.int32)
        self._builder = RequestBuilder()
        self._segment_of: dict[bytes, int] = {}
        self._lines: list[Line] = []
        self._num_blocks = 0
        self._tokens_asked = 0

    def add_warmup(self, block: StreamBlock, *, warmup_end: int, line_stride: int) -> None:
        """Adds the plain pass over a stream's first tokens: all but the first are targets."""
        if warmup_end < 2:
            return
        leaf, shift = self._row(np.zeros(0, dtype=np.int32), block.slice(0, warmup_end - 1))
        self._tokens_asked += self._bos.size + warmup_end - 1
        want = self._want(leaf, block, cut=-shift, positions=np.arange(1, warmup_end))
        self._lines.append(
            Line(
                block=self._num_blocks,
                stride=line_stride,
                rank=BASELINE,
                target_begin=1,
                target_end=warmup_end,
                context_len=1,
                target_want=want,
                lookback_want=0,
                lookback_len=0,
            )
        )

    def add_block(self, block: StreamBlock, passages: Sequence[Sequence[Int32Array]]) -> None:
        """Adds the rows of a block's strides.

        Args:
            block: the strides.
            passages: [J][<= K] passage tokens, by rank.
        """
        empty = np.zeros(0, dtype=np.int32)
        uses: dict[bytes, tuple[Int32Array, list[_Use]]] = {}
        for j in range(block.num_strides):
            t, end = self._windows.span(block.first_stride + j, block.num_tokens)
            for rank, passage in enumerate([empty, *passages[j]], start=BASELINE):
                cut = self._windows.left_cut(t, passage.size)
                use = _Use(block.first_stride + j, rank, t, end, cut)
                self._tokens_asked += self._bos.size + passage.size + end - 1 - cut
                uses.setdefault(passage.tobytes(), (passage, []))[1].append(use)
        for passage, of_passage in uses.values():
            for group in self._groups(of_passage):
                self._add_row(block, passage, group)
        self._num_blocks += 1

    def build(self) -> LaidOut:
        """Freezes the rows of all blocks."""
        order = sorted(self._lines, key=lambda line: (line.block, line.stride, line.rank))
        return LaidOut(
            requests=self._builder.build(),
            lines=order,
            rows=len(order),
            tokens=self._tokens_asked,
        )

    def _groups(self, uses: list[_Use]) -> Iterator[list[_Use]]:
        """Strides that share a row: cut for the last one, none lacks more than the slack.

        Nor may the cut reach what an earlier stride has to predict: at the start of a stream whole
        rows have cut 0, and the first ones hold little but their targets.
        """
        group: list[_Use] = []
        first_wanted = 0
        for use in uses:
            wanted = self._lookback_begin(use)
            if group and (
                use.cut - group[0].cut > self._windows.cfg.context_slack
                or use.cut >= first_wanted
                or not (self._merge or use.stride == group[0].stride)
            ):
                yield group
                group = []
            first_wanted = min(first_wanted, wanted) if group else wanted
            group.append(use)
        if group:
            yield group

    def _add_row(self, block: StreamBlock, passage: Int32Array, group: list[_Use]) -> None:
        cut, row_end = group[-1].cut, group[-1].end
        leaf, shift = self._row(passage, block.slice(cut, row_end - 1))
        spans = [(max(1, u.t), u.end, self._lookback_begin(u)) for u in group]
        positions = np.unique(np.concatenate([np.arange(low, end) for _, end, low in spans]))
        first = self._want(leaf, block, cut=cut - shift, positions=positions)
        for use, (target_begin, end, low) in zip(group, spans, strict=True):
            self._lines.append(
                Line(
                    block=self._num_blocks,
                    stride=use.stride,
                    rank=use.rank,
                    target_begin=target_begin,
                    target_end=end,
                    context_len=target_begin - cut,
                    target_want=first + int(np.searchsorted(positions, target_begin)),
                    lookback_want=first + int(np.searchsorted(positions, low)),
                    lookback_len=max(0, use.t - low),
                )
            )

    def _lookback_begin(self, use: _Use) -> int:
        if use.rank == BASELINE:
            return max(1, use.t)
        return max(1, use.t - self._windows.lookback)

    def _row(self, passage: Int32Array, stream_tokens: Int32Array) -> tuple[int, int]:
        """Adds a row's segments; returns its leaf and the leaf's tokens before the stream's."""
        head = np.concatenate([self._bos, passage])
        if not passage.size:
            tokens = np.concatenate([head, stream_tokens])
            return self._builder.add_segment(tokens), head.size
        key = passage.tobytes()
        if key not in self._segment_of:
            self._segment_of[key] = self._builder.add_segment(head)
        sees = [(self._segment_of[key], head.size)]
        return self._builder.add_segment(stream_tokens, position=head.size, sees=sees), 0

    def _want(
        self,
        leaf: int,
        block: StreamBlock,
        *,
        cut: int,
        positions: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> int:
        """Asks for stream positions in a leaf whose token 0 would be stream token `cut`."""
        targets = block.tokens[positions - block.token_base]
        offsets = (positions - 1 - cut).astype(np.int32)
        return self._builder.add_wants(
            leaf, predictor_segment=leaf, offsets=offsets, targets=targets
        )
