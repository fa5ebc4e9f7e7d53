"""How far a job is: events for whoever displays them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    """State of a job after a shard.

    Attributes:
        done_shards, num_shards: committed and all shards, those of earlier sessions included.
        done_strides, num_strides: the same in strides.
        strides_per_second, tokens_per_second: of this session; tokens are those forwarded.
        share_saved: share of the asked tokens that sharing saved in this session.
        eta_seconds: time left at this pace; None while unknown.
    """

    done_shards: int
    num_shards: int
    done_strides: int
    num_strides: int
    strides_per_second: float
    tokens_per_second: float
    share_saved: float
    eta_seconds: float | None


ProgressSink = Callable[[ProgressEvent], None]

StageSink = Callable[[str, int, int], None]
"""Told (what, done, all) during long steps before the first shard; all is 0 where it is unknown."""


def of_stage(sink: StageSink | None, what: str) -> Callable[[int, int], None] | None:
    """The (done, all) callback of one step; None where nobody listens."""
    if sink is None:
        return None
    return lambda done, total: sink(what, done, total)


@dataclass(slots=True, kw_only=True)
class ProgressMeter:
    """Turns finished shards into events.

    Attributes:
        num_shards, num_strides: of the whole job.
        done_shards, done_strides: so far; start with what earlier sessions committed.
        sink: who is told; None for nobody.
    """

    num_shards: int
    num_strides: int
    done_shards: int
    done_strides: int
    sink: ProgressSink | None
    _began: float = field(default_factory=time.monotonic)
    _strides: int = 0
    _asked: int = 0
    _forwarded: int = 0

    def start(self) -> None:
        """Tells the sink where the job stands before the first shard of this session."""
        self._tell()

    def shard_done(self, timing: pa.Table, *, num_strides: int) -> None:
        """Counts a committed shard in; `timing` is its line of the timing table."""
        line = timing.to_pylist()[0]
        self.done_shards += 1
        self.done_strides += num_strides
        self._strides += num_strides
        self._asked += line["tokens_asked"]
        self._forwarded += line["tokens_forwarded"]
        self._tell()

    def _tell(self) -> None:
        if self.sink is None:
            return
        elapsed = max(time.monotonic() - self._began, 1e-9)
        pace = self._strides / elapsed
        self.sink(
            ProgressEvent(
                done_shards=self.done_shards,
                num_shards=self.num_shards,
                done_strides=self.done_strides,
                num_strides=self.num_strides,
                strides_per_second=pace,
                tokens_per_second=self._forwarded / elapsed,
                share_saved=1 - self._forwarded / self._asked if self._asked else 0.0,
                eta_seconds=(self.num_strides - self.done_strides) / pace if pace else None,
            )
        )
