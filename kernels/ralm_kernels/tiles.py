"""Cuts a packed batch into query tiles and lists the keys each tile reads.

A tile is a run of consecutive packed tokens that one GPU program computes for a group of heads.
Keys that all its tokens see are *full* spans, a multiple of the key block long, read without any
mask. All others are *masked* spans. Short neighbours that see the same keys share a tile, so that
those keys are read once for all of them (the branches of one context, the tails of one stride).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ralm_kernels.plan import SegmentPlan, Span, filled_segments, joined

# A masked span with this window is the tile's own tokens: causal within each segment.
OWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWork:
    """The work list. N tiles, F full spans, P masked spans; all int32.

    Attributes:
        tiles_N6: token begin and end, first and last full span, first and last masked span.
        full_F2: key begin and end; the length is a multiple of the key block.
        masked_P4: key begin and end, then the window of tile tokens that see the span
            (absolute packed tokens, end exclusive), or (OWN, OWN).
        segment_begin_T: first token of the segment each token belongs to.
        num_blocks: key blocks all tiles read together, the unit of the kernel's work.
    """

    tiles_N6: npt.NDArray[np.int32]
    full_F2: npt.NDArray[np.int32]
    masked_P4: npt.NDArray[np.int32]
    segment_begin_T: npt.NDArray[np.int32]
    num_blocks: int


@dataclass(slots=True)
class _Piece:
    """The part of one segment that lies in a tile."""

    segment_begin: int
    begin: int
    end: int
    spans: tuple[Span, ...]


@dataclass(slots=True)
class _Tile:
    pieces: list[_Piece]
    shared: tuple[Span, ...] = field(default=())

    @property
    def begin(self) -> int:
        return self.pieces[0].begin

    @property
    def end(self) -> int:
        return self.pieces[-1].end


def tile_work(plan: SegmentPlan, *, tile_tokens: int, block_keys: int) -> TileWork:
    """Lists tiles, heaviest first, so that no long tile starts when the others are done.

    Args:
        plan: what every token sees.
        tile_tokens: most tokens in a tile.
        block_keys: keys read at a time.
    """
    spans_of_tiles = [_spans(tile, block_keys) for tile in _tiles(plan, tile_tokens, block_keys)]
    blocks_N = [
        sum(_blocks(end - begin, block_keys) for begin, end, *_ in (*full, *masked))
        for _, full, masked in spans_of_tiles
    ]
    tiles, all_full, all_masked = [], [], []
    for n in np.argsort(-np.array(blocks_N, dtype=np.int64), kind="stable").tolist():
        (begin, end), full, masked = spans_of_tiles[n]
        firsts = len(all_full), len(all_masked)
        all_full += full
        all_masked += masked
        tiles.append((begin, end, firsts[0], len(all_full), firsts[1], len(all_masked)))
    cu_tokens = plan.cu_tokens_S1.numpy()
    return TileWork(
        tiles_N6=np.array(tiles, dtype=np.int32).reshape(-1, 6),
        full_F2=np.array(all_full, dtype=np.int32).reshape(-1, 2),
        masked_P4=np.array(all_masked, dtype=np.int32).reshape(-1, 4),
        segment_begin_T=np.repeat(cu_tokens[:-1], np.diff(cu_tokens)).astype(np.int32),
        num_blocks=sum(blocks_N),
    )


def _tiles(plan: SegmentPlan, tile_tokens: int, block_keys: int) -> Iterator[_Tile]:
    tile: _Tile | None = None
    for begin, end, spans in filled_segments(plan):
        at = begin
        while at < end:
            room = tile_tokens - (tile.end - tile.begin) if tile else 0
            piece = _Piece(begin, at, min(end, at + (room or tile_tokens)), spans)
            if tile and room and _pays(tile, piece, block_keys):
                tile.pieces.append(piece)
                tile.shared = _intersection(tile.shared, spans)
            else:
                if tile:
                    yield tile
                piece.end = min(end, at + tile_tokens)
                tile = _Tile([piece], shared=spans)
            at = piece.end
    if tile:
        yield tile


def _pays(tile: _Tile, piece: _Piece, block_keys: int) -> bool:
    """Whether joining saves at least half of the blocks the piece would read on its own."""
    own, before = piece.end - piece.begin, tile.end - tile.begin
    growth = _blocks(before + own, block_keys) - _blocks(before, block_keys)
    shared = sum(
        _blocks(end - begin, block_keys)
        for begin, end in _intersection(tile.shared, piece.spans)
    )  # fmt: skip
    alone = _blocks(own, block_keys)
    cost = alone + sum(_blocks(end - begin, block_keys) for begin, end in piece.spans)
    return 2 * (shared + alone - growth) >= cost


def _spans(
    tile: _Tile, block_keys: int
) -> tuple[Span, list[Span], list[tuple[int, int, int, int]]]:
    """A tile's token range, its full spans and its masked spans."""
    begin, end = tile.begin, tile.end
    seen, own_begin = list(tile.shared), begin
    masked: list[tuple[int, int, int, int]] = []
    if len(tile.pieces) == 1:
        seen.append((tile.pieces[0].segment_begin, begin))
    full: list[Span] = []
    for first, last in joined(seen):
        cut = last - (last - first) % block_keys
        if cut > first:
            full.append((first, cut))
        if last == begin and len(tile.pieces) == 1:
            own_begin = max(cut, tile.pieces[0].segment_begin)
            last = own_begin
        if last > cut:
            masked.append((cut, last, begin, end))
    if len(tile.pieces) > 1:
        masked += _private(tile)
    masked.append((own_begin, end, OWN, OWN))
    return (begin, end), full, masked


def _private(tile: _Tile) -> list[tuple[int, int, int, int]]:
    """Spans that only some of the tile's pieces see, each with the window that sees it."""
    windows: list[tuple[int, int, int, int]] = []
    for piece in tile.pieces:
        before_own = [(piece.segment_begin, piece.begin)]
        for first, last in _difference(joined([*piece.spans, *before_own]), tile.shared):
            match = [w for w in windows if w[:2] == (first, last) and w[3] == piece.begin]
            if match:
                windows.remove(match[0])
            windows.append((first, last, match[0][2] if match else piece.begin, piece.end))
    return windows


def _intersection(left: tuple[Span, ...], right: tuple[Span, ...]) -> tuple[Span, ...]:
    if left == right:
        return left
    return joined([(max(a, c), min(b, d)) for a, b in left for c, d in right])


def _difference(spans: tuple[Span, ...], taken: tuple[Span, ...]) -> list[Span]:
    rest = []
    for first, last in spans:
        at = first
        for begin, end in taken:
            if begin < last and end > at:
                rest.append((at, begin))
                at = end
        rest.append((at, last))
    return [(begin, end) for begin, end in rest if end > begin]


def _blocks(length: int, block_keys: int) -> int:
    return -(-length // block_keys)
