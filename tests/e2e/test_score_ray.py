"""The Ray executor: same tables as inline, and kills of workers and drivers lose nothing."""

from __future__ import annotations

import contextlib
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
from ralm_engine.errors import InputError, RunError
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
    with pytest.raises(RunError, match=r"did not place 3 actors with .* free are 0 of 2 CPU"):
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


def commits(run: str) -> int:
    return len(list(Path(run, "commits").glob("part-*.json")))


def wait_for_commits(run: str, more_than: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while commits(run) <= more_than and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver; what it leaves behind goes too, as on a machine that is taken away."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "kills"), [("inline", 6), ("ray", 3)])
def test_drivers_killed_at_random_moments_resume_to_the_same_bytes(
    job: Job, tmp_path: Path, executor: str, kills: int
) -> None:
    """Probe 25: fails when a kill loses, doubles or tears a shard, or leaves the run locked."""
    small = ("run.shard_strides=2", "run.report=false")
    # Started like the killed run: bits depend on the number of threads.
    whole = job(*small, f"run.executor={executor}", out="whole")
    job_file = tmp_path / "job.toml"
    job_file.write_text(to_toml(whole), encoding="utf-8")
    assert start(job_file).wait(timeout=240) == 0
    cfg = job(*small, f"run.executor={executor}", out="killed")
    job_file.write_text(to_toml(cfg), encoding="utf-8")
    rng = np.random.default_rng(5)
    done = 0
    for _ in range(kills):
        process = start(job_file)
        wait_for_commits(cfg.run.out, commits(cfg.run.out), process)
        time.sleep(float(rng.uniform(0, 0.05)))
        assert process.poll() is None, "the run ended before it could be killed"
        kill_tree(process)
        done += 1
        for part in whole_parts(cfg.run.out):
            assert pq.read_metadata(part).num_rows > 0
    assert done == kills
    assert start(job_file).wait(timeout=240) == 0
    assert verify_run(cfg.run.out) == []
    assert file_hashes(cfg.run.out) == file_hashes(whole.run.out)


@pytest.mark.slow
def test_a_killed_ray_worker_costs_nothing(job: Job, tmp_path: Path) -> None:
    """Probe 25: fails when a run does not survive the loss of the actor that scores."""
    small = ("run.shard_strides=2", "run.report=false")
    whole = job(*small, out="whole")
    run_job(whole)
    cfg = job(*small, "run.executor=ray", out="killed")
    job_file = tmp_path / "job.toml"
    job_file.write_text(to_toml(cfg), encoding="utf-8")
    process = start(job_file)
    wait_for_commits(cfg.run.out, 0, process)
    actors = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "_Score" in " ".join(child.cmdline())
    ]
    assert actors, "no scoring actor was found"
    actors[0].kill()
    assert process.wait(timeout=240) == 0
    assert verify_run(cfg.run.out) == []
    assert file_hashes(cfg.run.out) == file_hashes(whole.run.out)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_an_error_in_an_actor_keeps_its_words_and_its_exit_code() -> None:
    """Fails when an error of a worker process reaches the user as a traceback or a TypeError."""
    from ralm_engine.jobs import ray_pipeline

    class Refuses:
        def shard_scorer(self, **_: object) -> None:
            raise InputError("nothing fits", hint="try another")

    score = ray_pipeline._Score(ray.put(Refuses()), 1)
    row = score({"part": 0, "work": 1, "error": "", "fatal": None})
    fatal = ray.get(ray.put(row))["fatal"]
    assert (str(fatal), fatal.exit_code) == ("nothing fits; try another", 2)
