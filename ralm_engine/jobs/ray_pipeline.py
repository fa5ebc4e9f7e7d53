"""The Ray executor: shards -> retrieve (CPU actors) -> score (an actor a GPU) -> commit, streamed.

Retrieval runs ahead of scoring until Ray Data's back-pressure stops it. A shard is one block, so
that it is the unit which is retried and whose result streams out.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.util.metrics import Counter
from ray.util.placement_group import placement_group, remove_placement_group

from ralm_engine.errors import RalmError, RunError
from ralm_engine.jobs.outcome import ShardOutcome
from ralm_engine.jobs.worker import WorkerSpec, threads_per_worker
from ralm_engine.ralm.score import ScoredShard
from ralm_engine.ralm.shards import Shard
from ralm_engine.store.shards import ShardWriter

PLACEMENT_TIMEOUT_SECONDS = 30.0
"""A job that cannot get its first actor in this time is an error, not a silent wait."""

MAX_TASK_RETRIES = 1
"""Times Ray itself repeats a shard whose worker died; its own default is for ever."""

Row = dict[str, Any]

_METRICS = {
    "num_strides": "Strides scored",
    "rows": "LM rows scored",
    "tokens_asked": "Row tokens before anything is shared",
    "tokens_forwarded": "Tokens that went through the model",
    "score_seconds": "Seconds spent scoring",
}
"""Columns of the timing table that every scoring actor also exports as Ray metrics, ralm_<name>."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What the pools of a job ask of the cluster.

    Attributes:
        workers, retrieval_workers: actors of each pool.
        num_gpus: of a scoring actor.
        num_cpus: of every actor; a share, so that whole CPUs stay free for Ray Data's own tasks.
    """

    workers: int
    retrieval_workers: int
    num_gpus: int
    num_cpus: float


def run_on_ray(
    spec: WorkerSpec, shards: Sequence[Shard], writer: ShardWriter
) -> Iterator[ShardOutcome]:
    """Runs the shards through Ray Data; yields what became of each, in order of completion.

    Uses the cluster of RAY_ADDRESS where that is set, else starts Ray on this machine and stops it
    at the end.

    Raises:
        RunError: the cluster cannot place the job's actors.
        RalmError: nothing further can succeed (the disk is full, the model cannot be loaded).
    """
    if not shards:
        return
    started_here = not ray.is_initialized()
    if started_here:
        _start()
    try:
        placement = plan_placement(spec, ray.cluster_resources())
        check_placement(placement)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = -1
        context.print_on_execution_start = False
        yield from _stream(spec, shards, writer, placement)
    finally:
        if started_here:
            ray.shutdown()


def plan_placement(spec: WorkerSpec, resources: dict[str, float]) -> Placement:
    """Derives pool sizes and shares from what the cluster has.

    Actors together reserve all CPUs but one: Ray Data pipelines hang for ever when no whole CPU is
    left for tasks (measured on 2 CPUs with three actors of 0.5).

    Raises:
        RunError: more GPUs are asked for than there are.
    """
    cfg = spec.cfg
    gpus = int(resources.get("GPU", 0))
    use_gpu = gpus > 0 and cfg.model.device != "cpu"
    workers = cfg.run.workers or (gpus if use_gpu else 1)
    if use_gpu and workers > gpus:
        raise RunError(
            f"[run] workers = {workers} asks for {workers} GPUs, the cluster has {gpus}",
            hint=f"set workers = {gpus} or fewer",
        )
    cpus = resources.get("CPU", 0.0)
    actors = workers + cfg.run.retrieval_workers + 1
    share = max(0.05, min(1.0, (cpus - 1) / actors)) if cpus > 1 else 0.05
    return Placement(
        workers=workers,
        retrieval_workers=cfg.run.retrieval_workers,
        num_gpus=1 if use_gpu else 0,
        num_cpus=math.floor(100 * share) / 100,
    )


def check_placement(placement: Placement) -> None:
    """Reserves what all actors of the job and one task need, so that a full cluster is an error.

    Raises:
        RunError: it was not to be had within PLACEMENT_TIMEOUT_SECONDS.
    """
    scoring: dict[str, float] = {"CPU": placement.num_cpus}
    if placement.num_gpus:
        scoring["GPU"] = placement.num_gpus
    others = [{"CPU": placement.num_cpus}] * (placement.retrieval_workers + 1)
    bundles = [scoring] * placement.workers + others + [{"CPU": 1.0}]
    group = placement_group(bundles)
    try:
        ray.get(group.ready(), timeout=PLACEMENT_TIMEOUT_SECONDS)
    except ray.exceptions.GetTimeoutError:
        free, there = ray.available_resources(), ray.cluster_resources()
        asked = sum(bundle["CPU"] for bundle in bundles)
        raise RunError(
            f"Ray did not place {len(bundles) - 1} actors with {asked:g} CPU and "
            f"{placement.workers * placement.num_gpus} GPU in {PLACEMENT_TIMEOUT_SECONDS:.0f} s; "
            f"free are {free.get('CPU', 0):g} of {there.get('CPU', 0):g} CPU and "
            f"{free.get('GPU', 0):g} of {there.get('GPU', 0):g} GPU",
            hint="wait for other jobs or set [run] workers lower",
        ) from None
    finally:
        remove_placement_group(group)


def _start() -> None:
    # "local" and not None: without an address Ray would join whatever cluster runs on this machine.
    address = os.environ.get("RAY_ADDRESS")
    local: Row = {} if address else {"num_cpus": max(2, len(os.sched_getaffinity(0)))}
    ray.init(
        address=address or "local",
        include_dashboard=None if address else False,
        logging_level=logging.WARNING,
        log_to_driver=False,
        **local,
    )


def _pipeline(
    spec: WorkerSpec, shards: Sequence[Shard], writer: ShardWriter, placement: Placement
) -> ray.data.Dataset:
    """The lazy data set: one row a shard, mapped by the pools of the three stages."""
    spec_ref, writer_ref = ray.put(spec), ray.put(writer)
    return (
        ray.data.from_items(
            [{"part": s.part, "work": s, "error": "", "fatal": None} for s in shards],
            override_num_blocks=len(shards),
        )
        .map(
            _Retrieve,
            fn_constructor_args=(spec_ref,),
            compute=ray.data.ActorPoolStrategy(size=placement.retrieval_workers),
            num_cpus=placement.num_cpus,
            max_task_retries=MAX_TASK_RETRIES,
        )
        .map(
            _Score,
            fn_constructor_args=(spec_ref, threads_per_worker(placement.workers)),
            compute=ray.data.ActorPoolStrategy(size=placement.workers),
            num_cpus=placement.num_cpus,
            num_gpus=placement.num_gpus,
            max_task_retries=MAX_TASK_RETRIES,
        )
        .map(
            _Commit,
            fn_constructor_args=(writer_ref,),
            compute=ray.data.ActorPoolStrategy(size=1),
            num_cpus=placement.num_cpus,
            max_task_retries=MAX_TASK_RETRIES,
        )
    )


def _stream(
    spec: WorkerSpec, shards: Sequence[Shard], writer: ShardWriter, placement: Placement
) -> Iterator[ShardOutcome]:
    dataset = _pipeline(spec, shards, writer, placement)
    missing = {shard.part for shard in shards}
    try:
        for row in dataset.iter_rows():
            if row["fatal"] is not None:
                raise row["fatal"]
            missing.discard(row["part"])
            yield ShardOutcome(part=row["part"], timing=row["work"], error=row["error"])
    except ray.exceptions.RayError as cause:
        raise RunError(
            f"Ray stopped the job: {str(cause).strip().splitlines()[-1]}",
            hint="give the same command again to go on with the committed shards",
        ) from cause
    for part in sorted(missing):
        yield ShardOutcome(part=part, timing=None, error="its worker died on it")


class _Step:
    """One stage of the pipeline in an actor.

    A failure travels on in the row instead of ending the pipeline: what is wrong with one shard
    ends that shard, a RalmError ends the job.
    """

    def __init__(self, load: Callable[[], Callable[[Any], Any]]) -> None:
        self._fatal: RalmError | None = None
        try:
            self._step = load()
        except RalmError as fatal:
            self._fatal = fatal

    def __call__(self, row: Row) -> Row:
        done: Row = {"part": row["part"], "work": None, "error": row["error"]}
        done["fatal"] = row["fatal"] or self._fatal
        if done["error"] or done["fatal"]:
            return done
        try:
            done["work"] = self._step(row["work"])
        except RalmError as fatal:
            done["fatal"] = fatal
        except Exception:  # whatever it was, the other shards go on and the run reports this one
            done["error"] = traceback.format_exc()
        return done


class _Retrieve(_Step):
    def __init__(self, spec: ray.ObjectRef) -> None:
        super().__init__(lambda: ray.get(spec).shard_retriever().retrieve)


class _Score(_Step):
    def __init__(self, spec: ray.ObjectRef, num_threads: int) -> None:
        super().__init__(lambda: ray.get(spec).shard_scorer(num_threads=num_threads).score)
        self._counters = {
            name: Counter(f"ralm_{name}", description=description)
            for name, description in _METRICS.items()
        }

    def __call__(self, row: Row) -> Row:
        done = super().__call__(row)
        if done["work"] is not None:
            line = done["work"].tables["timing"].to_pylist()[0]
            for name, counter in self._counters.items():
                counter.inc(line[name])
        return done


class _Commit(_Step):
    def __init__(self, writer: ray.ObjectRef) -> None:
        super().__init__(lambda: functools.partial(_commit, ray.get(writer)))


def _commit(writer: ShardWriter, scored: ScoredShard) -> pa.Table:
    writer.commit(scored.part, scored.tables)
    return scored.tables["timing"]
