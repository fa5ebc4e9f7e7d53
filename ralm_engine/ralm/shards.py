"""Streams -> shards: the units that are scored, committed and retried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ralm_engine.errors import InputError
from ralm_engine.ralm.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive strides of one stream.

    Attributes:
        stream: number of the stream in the stream file.
        first_stride: number of the first stride.
        num_strides: strides; 0 where a stream ends within its warm-up.
        warmup: whether the stream's warm-up pass belongs to this span.
    """

    stream: int
    first_stride: int
    num_strides: int
    warmup: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of every table.

    Attributes:
        part: its number.
        spans: its strides, in stream order.
    """

    part: int
    spans: tuple[Span, ...]

    @property
    def num_strides(self) -> int:
        """Strides over all spans."""
        return sum(span.num_strides for span in self.spans)


def cut_shards(num_tokens: Sequence[int], windows: Windows, *, shard_strides: int) -> list[Shard]:
    """Cuts streams into shards of at most `shard_strides` strides, short streams together.

    A warm-up pass counts as one stride, so that a shard of many short streams stays small.

    Args:
        num_tokens: tokens of each stream.
        windows: the job's windows.
        shard_strides: strides per shard, at least 1.
    """
    if shard_strides < 1:
        raise InputError(f"[run] shard_strides = {shard_strides} must be at least 1")
    shards: list[Shard] = []
    spans: list[Span] = []
    room = shard_strides

    def close() -> None:
        nonlocal spans, room
        if spans:
            shards.append(Shard(part=len(shards), spans=tuple(spans)))
        spans, room = [], shard_strides

    for stream, tokens in enumerate(num_tokens):
        warmup = windows.warmup_end(tokens) >= 2
        rest = windows.num_strides(tokens)
        first = 0
        while rest or warmup:
            taken = min(rest, room)
            spans.append(Span(stream=stream, first_stride=first, num_strides=taken, warmup=warmup))
            room -= max(taken, 1)
            first, rest, warmup = first + taken, rest - taken, False
            if room <= 0:
                close()
    close()
    return shards
