"""The Ray executor: same tables as inline, and kills of workers and drivers lose nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from ralm_engine.config import JobConfig, to_toml
from ralm_engine.errors import RunError
from ralm_engine.jobs.score import run_job
from ralm_engine.store.verify import verify_run

Job = Callable[..., JobConfig]

ray = pytest.importorskip("ray", reason="the Ray executor needs ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One local Ray for all tests of this file: starting it takes seconds."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def file_hashes(run: str) -> dict[str, str]:
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for table in ("strides", "candidates")
        for path in sorted(Path(run, table).glob("part-*.parquet"))
    }


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_gives_the_tables_of_inline_bit_for_bit(job: Job, workers: int) -> None:
    """Fails when a shard's numbers depend on who scored it (deterministic mode, one thread)."""
    inline = job("run.deterministic=true", out="inline")
    on_ray = job("run.deterministic=true", "run.executor=ray", f"run.workers={workers}", out="ray")
    run_job(inline)
    assert run_job(on_ray).failed == {}
    assert verify_run(on_ray.run.out) == []
    assert file_hashes(inline.run.out) == file_hashes(on_ray.run.out)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_a_job_that_cannot_be_placed_says_what_it_asked_for(job: Job) -> None:
    """Fails when a full cluster means a silent wait."""

    @ray.remote(num_cpus=2)
    class Hog:
        def ready(self) -> bool:
            return True

    hog = Hog.remote()
    ray.get(hog.ready.remote())
    began = time.monotonic()
    with pytest.raises(RunError, match=r"did not place an actor with .* free are 0 of 2 CPU"):
        run_job(job("run.executor=ray"))
    assert time.monotonic() - began < 60
    ray.kill(hog)


def whole_parts(run: str) -> list[Path]:
    """Candidate files under their final names, whoever was killed a moment ago."""
    return sorted(Path(run, "candidates").glob("part-*.parquet"))


def start(job_file: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "ralm_engine.cli", "score", str(job_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_kills_at_random_moments_and_resume_give_the_same_bytes(
    job: Job, tmp_path: Path, executor: str
) -> None:
    """Probe 25: fails when a kill loses, doubles or tears a shard, or leaves the run locked.

    Half of the Ray kills hit a worker instead of the driver: the run must then end by itself.
    """
    whole = job("run.shard_strides=4", "run.report=false", out="whole")
    run_job(whole)
    cfg = job("run.shard_strides=4", "run.report=false", f"run.executor={executor}", out="killed")
    job_file = tmp_path / "job.toml"
    job_file.write_text(to_toml(cfg), encoding="utf-8")
    rng = np.random.default_rng(5)
    kills, rounds = 0, 5
    for number in range(rounds):
        process = start(job_file)
        time.sleep(float(rng.uniform(4, 14)))
        if process.poll() is None:
            target = process.pid
            children = psutil.Process(process.pid).children(recursive=True)
            actors = [c for c in children if "ray::" in " ".join(c.cmdline())]
            if number % 2 and actors:
                target = actors[int(rng.integers(len(actors)))].pid
            os.kill(target, signal.SIGKILL)
            kills += 1
            if target == process.pid:
                process.wait()
                for child in children:
                    if child.is_running():
                        child.kill()
                for part in whole_parts(cfg.run.out):
                    assert pq.read_metadata(part).num_rows > 0
        process.wait(timeout=240)
    process = start(job_file)
    assert process.wait(timeout=240) == 0
    assert kills > 0
    assert verify_run(cfg.run.out) == []
    assert file_hashes(cfg.run.out) == file_hashes(whole.run.out)
