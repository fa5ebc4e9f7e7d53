"""What became of a shard, and of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """One shard.

    Attributes:
        part: its number.
        timing: its line of the timing table; None where it failed.
        error: the traceback; empty where it was committed.
    """

    part: int
    timing: pa.Table | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """One run.

    Attributes:
        path: the run directory.
        num_shards: shards of the finished run.
        failed: shards that could not be scored, with their last error line.
        summary: what summary.json holds; None while shards are missing.
    """

    path: str
    num_shards: int
    failed: dict[int, str]
    summary: dict[str, Any] | None
