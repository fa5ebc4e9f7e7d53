"""The Ray executor: shards -> retrieve (CPU actors) -> score (an actor a GPU) -> commit, streamed.

Retrieval runs ahead of scoring until Ray Data's back-pressure stops it. A shard is one block, so
that it is the unit which is retried and whose result streams out.
"""

from __future__ import annotations

import functools
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.util.metrics import Counter

from ralm_engine.errors import RalmError, RunError
from ralm_engine.jobs.outcome import ShardOutcome
from ralm_engine.jobs.worker import WorkerSpec, threads_per_worker
from ralm_engine.ralm.score import ScoredShard
from ralm_engine.ralm.shards import Shard
from ralm_engine.store.shards import ShardWriter

PLACEMENT_TIMEOUT_SECONDS = 30.0
"""A job that cannot get its first actor in this time is an error, not a silent wait."""

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
        num_cpus=round(share, 2),
    )


def check_placement(placement: Placement) -> None:
    """Places one trivial actor of the job's shape, so that a full cluster is an error at once.

    Raises:
        RunError: it was not placed within PLACEMENT_TIMEOUT_SECONDS.
    """
    probe = ray.remote(_Probe).options(
        num_cpus=placement.num_cpus, num_gpus=placement.num_gpus
    ).remote()  # fmt: skip
    try:
        ray.get(probe.ready.remote(), timeout=PLACEMENT_TIMEOUT_SECONDS)
    except ray.exceptions.GetTimeoutError:
        free = ray.available_resources()
        raise RunError(
            f"Ray did not place an actor with {placement.num_cpus} CPU and {placement.num_gpus} "
            f"GPU in {PLACEMENT_TIMEOUT_SECONDS:.0f} s; free are {free.get('CPU', 0):g} of "
            f"{ray.cluster_resources().get('CPU', 0):g} CPU and {free.get('GPU', 0):g} GPU",
            hint="wait for other jobs or set [run] workers lower",
        ) from None
    finally:
        ray.kill(probe)


class _Probe:
    def ready(self) -> bool:
        return True


def _start() -> None:
    # Workers import the same packages as this process, from the same places.
    address = os.environ.get("RAY_ADDRESS")
    local: Row = {} if address else {"num_cpus": max(2, len(os.sched_getaffinity(0)))}
    ray.init(
        address=address,
        include_dashboard=None if address else False,
        logging_level=logging.WARNING,
        log_to_driver=False,
        **local,
    )


def _stream(
    spec: WorkerSpec, shards: Sequence[Shard], writer: ShardWriter, placement: Placement
) -> Iterator[ShardOutcome]:
    spec_ref, writer_ref = ray.put(spec), ray.put(writer)
    dataset = (
        ray.data.from_items(
            [{"part": s.part, "work": s, "error": "", "fatal": None} for s in shards],
            override_num_blocks=len(shards),
        )
        .map(
            _Retrieve,
            fn_constructor_args=(spec_ref,),
            compute=ray.data.ActorPoolStrategy(size=placement.retrieval_workers),
            num_cpus=placement.num_cpus,
        )
        .map(
            _Score,
            fn_constructor_args=(spec_ref, threads_per_worker(placement.workers)),
            compute=ray.data.ActorPoolStrategy(size=placement.workers),
            num_cpus=placement.num_cpus,
            num_gpus=placement.num_gpus,
        )
        .map(
            _Commit,
            fn_constructor_args=(writer_ref,),
            compute=ray.data.ActorPoolStrategy(size=1),
            num_cpus=placement.num_cpus,
        )
    )
    try:
        for row in dataset.iter_rows():
            if row["fatal"] is not None:
                raise row["fatal"]
            yield ShardOutcome(part=row["part"], timing=row["work"], error=row["error"])
    except ray.exceptions.RayError as cause:
        raise RunError(
            f"Ray stopped the job: {str(cause).strip().splitlines()[-1]}",
            hint="give the same command again to go on with the committed shards",
        ) from cause


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
