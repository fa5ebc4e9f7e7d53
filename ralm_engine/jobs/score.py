"""Runs a scoring job from its job file to its report; goes on where an earlier start stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.config import JobConfig
from ralm_engine.jobs.inline import run_inline
from ralm_engine.jobs.outcome import RunOutcome, ShardOutcome
from ralm_engine.jobs.plan import plan_inputs
from ralm_engine.jobs.prepare import Inputs, PreparedRun, prepare_run
from ralm_engine.jobs.progress import ProgressMeter, ProgressSink, StageSink
from ralm_engine.jobs.worker import WorkerSpec
from ralm_engine.ralm.analysis import analyze_run, write_summary
from ralm_engine.ralm.shards import Shard
from ralm_engine.report.render import render_report
from ralm_engine.schema import STREAMS
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.store.shards import ShardWriter

log = logging.getLogger(__name__)

MAX_RETRIES = 2
"""Times a failed shard is tried again, after the others, before it is reported."""

Executor = Callable[[WorkerSpec, Sequence[Shard], ShardWriter], Iterator[ShardOutcome]]


def run_job(
    cfg: JobConfig, *, progress: ProgressSink | None = None, stages: StageSink | None = None
) -> RunOutcome:
    """Scores what is not yet committed, then analyses and reports.

    Args:
        cfg: the job.
        progress: told after every shard.
        stages: told during long steps before the first shard.

    Returns:
        What became of the run; failed shards are listed, the others are committed.

    Raises:
        InputError: bad inputs, or a run directory of another job.
        RunError: the run cannot go on (storage, placement), or too many NLLs are not finite.
    """
    prepared = prepare_run(cfg, progress=stages)
    with prepared.run as run:
        if "plan" not in run.manifest:
            run.update_manifest({"plan": plan_inputs(prepared.inputs).as_dict()})
        run.write_table("streams", streams_table(prepared.inputs))
        failed = _score_pending(prepared, progress)
        complete = run.finish(
            {
                "failed_shards": {str(part): why for part, why in failed.items()},
                "peak_memory_bytes": pc.max(run.tables("timing")["peak_bytes"]).as_py(),
            }
        )
        summary = _conclude(cfg, run) if complete else None
    return RunOutcome(
        path=run.location.label,
        num_shards=len(prepared.inputs.shards),
        failed=failed,
        summary=summary,
    )


def _conclude(cfg: JobConfig, run: RunDirectory) -> dict[str, Any]:
    summary = analyze_run(run, seed=cfg.run.seed, max_nonfinite_ratio=cfg.run.max_nonfinite_ratio)
    write_summary(run, summary)
    if cfg.run.report:
        render_report(cfg.run.out)
    return summary


def _score_pending(prepared: PreparedRun, progress: ProgressSink | None) -> dict[int, str]:
    """Runs what is not committed, failed shards again up to MAX_RETRIES times."""
    shards = {shard.part: shard for shard in prepared.inputs.shards}
    done = set(prepared.run.committed())
    meter = ProgressMeter(
        num_shards=len(shards),
        num_strides=sum(shard.num_strides for shard in shards.values()),
        done_shards=len(done),
        done_strides=sum(shards[part].num_strides for part in done),
        sink=progress,
    )
    meter.start()
    execute = _executor(prepared.inputs.spec.cfg)
    failed = {part: "" for part in shards if part not in done}
    for _ in range(1 + MAX_RETRIES):
        pending = [shards[part] for part in failed]
        failed = {}
        for outcome in execute(prepared.inputs.spec, pending, prepared.run.writer()):
            if outcome.timing is None:
                log.warning("shard %d failed: %s", outcome.part, outcome.error)
                failed[outcome.part] = outcome.error.strip().splitlines()[-1]
            else:
                meter.shard_done(outcome.timing, num_strides=shards[outcome.part].num_strides)
        if not failed:
            break
    return failed


def _executor(cfg: JobConfig) -> Executor:
    if cfg.run.executor == "inline":
        return run_inline
    from ralm_engine.jobs.ray_pipeline import run_on_ray

    return run_on_ray


def streams_table(inputs: Inputs) -> pa.Table:
    """Lengths of every stream in tokens, words, spaces and bytes."""
    lines = []
    for number, stream_id in enumerate(inputs.streams.stream_ids):
        counts = inputs.streams.counts(number)
        tokens = int(inputs.streams.num_tokens[number])
        lines.append(
            {
                "stream_id": stream_id,
                "num_tokens": tokens,
                "num_words": counts.words,
                "num_spaces": counts.spaces,
                "num_bytes": counts.bytes,
                "status": "ok" if tokens > 1 else "empty",
            }
        )
    return pa.Table.from_pylist(lines, schema=STREAMS)
