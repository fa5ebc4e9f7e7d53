"""The executor without Ray: one shard after the other in this process, for debugging and demos."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence

from ralm_engine.errors import RalmError
from ralm_engine.jobs.outcome import ShardOutcome
from ralm_engine.jobs.worker import WorkerSpec
from ralm_engine.ralm.shards import Shard
from ralm_engine.store.shards import ShardWriter


def run_inline(
    spec: WorkerSpec, shards: Sequence[Shard], writer: ShardWriter
) -> Iterator[ShardOutcome]:
    """Retrieves, scores and commits each shard; yields what became of it.

    Raises:
        RalmError: nothing further can succeed (the disk is full, the model cannot be loaded).
    """
    if not shards:
        return
    retriever, scorer = spec.shard_retriever(), spec.shard_scorer()
    for shard in shards:
        try:
            scored = scorer.score(retriever.retrieve(shard))
            writer.commit(shard.part, scored.tables)
        except RalmError:
            raise
        except Exception:
            yield ShardOutcome(part=shard.part, timing=None, error=traceback.format_exc())
        else:
            yield ShardOutcome(part=shard.part, timing=scored.tables["timing"], error="")
