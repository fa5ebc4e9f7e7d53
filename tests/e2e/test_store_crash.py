"""A run survives whatever happens to its writer: SIGKILL at any moment, a full disk."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from ralm_engine.errors import RunError
from ralm_engine.schema import CANDIDATES, STREAMS, STRIDES
from ralm_engine.store.claim import claim_run
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.store.verify import verify_run

NUM_SHARDS = 14
WRITER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("crash", sys.argv[1])
crash = importlib.util.module_from_spec(spec)
spec.loader.exec_module(crash)
crash.write(sys.argv[2])
"""


def shard(part):
    """A shard that depends on its number alone, with more lines than one page holds."""
    rng = np.random.default_rng(part)
    values = rng.random((64, 4), dtype=np.float32)
    stride = {
        "stream_id": "s",
        "query_terms": 1,
        "retrieval_status": "ok",
        "token_ids": [1, 2, 3, 4],
        "context_len": 1,
        "num_candidates": 1,
        "target_len": 4,
        "status": "ok",
    }
    candidate = {
        "stream_id": "s",
        "rank": 0,
        "passage": 1,
        "score": 1.0,
        "passage_len": 1,
        "context_len": 1,
        "duplicate_of": -1,
        "status": "ok",
    }
    numbers = range(part * 64, part * 64 + 64)
    strides = [
        {
            **stride,
            "stride": number,
            "target_begin": 1 + 4 * number,
            "baseline_nll": row.tolist(),
            "baseline_entropy": row.tolist(),
        }
        for number, row in zip(numbers, values, strict=True)
    ]
    candidates = [
        {**candidate, "stride": number, "target_nll": row.tolist(), "rank_nll": row.tolist()}
        for number, row in zip(numbers, values, strict=True)
    ]
    return {
        "strides": pa.Table.from_pylist(strides, schema=STRIDES),
        "candidates": pa.Table.from_pylist(candidates, schema=CANDIDATES),
    }


def streams():
    counts = dict.fromkeys(("num_words", "num_spaces", "num_bytes"), 9)
    line = {"stream_id": "s", "num_tokens": 1 + 4 * 64 * NUM_SHARDS, "status": "ok", **counts}
    return pa.Table.from_pylist([line], schema=STREAMS)


def open_run(out):
    manifest = {"num_shards": NUM_SHARDS, "seed": 0}
    return RunDirectory.create_or_resume(out, identity={}, manifest=manifest, config_toml="")


def write(out):
    """Goes on with the run from where it stands to its end."""
    with open_run(out) as run:
        run.write_table("streams", streams())
        commit_all(run)
        run.finish()


def commit_all(run):
    done = set(run.committed())
    for part in range(NUM_SHARDS):
        if part not in done:
            run.commit_shard(part, shard(part))


def names_in(path):
    return sorted(file.name for file in path.iterdir()) if path.exists() else []


def contents(path):
    tables = ("strides", "candidates")
    return {(t, f.name): f.read_bytes() for t in tables for f in sorted((path / t).iterdir())}


@pytest.mark.parametrize("tries", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_and_resumed_gives_the_same_bytes(tmp_path, tries):
    """Probe 25. Fails if a half shard is visible after a SIGKILL, or the resumed files differ."""
    write(tmp_path / "unbroken")
    path = tmp_path / "run"
    rng = np.random.default_rng(7)
    kills = 0
    for _ in range(tries):
        command = [sys.executable, "-c", WRITER, __file__, str(path)]
        before = (
            len(RunDirectory.open(path).committed()) if (path / "manifest.json").exists() else 0
        )
        with subprocess.Popen(command) as writer:
            moment = float(rng.uniform(0.0, 0.4 / tries))
            until = time.monotonic() + 60
            # Start-up takes most of a writer's life: the clock of the kill starts at its first
            # commit, so that the kills fall among the writes.
            while time.monotonic() < until and writer.poll() is None:
                if len(names_in(path / "commits")) > before:
                    break
                time.sleep(0.001)
            time.sleep(moment)
            writer.send_signal(signal.SIGKILL)
        kills += writer.returncode == -signal.SIGKILL
        run = RunDirectory.open(path)
        for part, table in run.shards("candidates"):
            assert table.equals(shard(part)["candidates"])
        assert verify_run(path) == []
        if writer.returncode == 0:
            break
    assert kills >= 1
    write(path)
    assert contents(path) == contents(tmp_path / "unbroken")
    assert not list(path.rglob("*.tmp"))
    assert json.loads((path / "manifest.json").read_text())["status"] == "complete"


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 2 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a tmpfs needs root")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_stops_the_run_with_its_cause_and_the_run_goes_on_later(small_disk):
    """Probe 27. Fails if a full disk commits half a shard, hides its cause, or spoils the run."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_900_000))
    path = small_disk / "run"
    with open_run(path) as run:
        cause = r"cannot write shard \d+ of .*: No space left"
        with pytest.raises(RunError, match=cause) as caught:
            commit_all(run)
        assert "give the same command again" in str(caught.value)
        done = run.committed()
        assert 0 < len(done) < NUM_SHARDS
        assert sorted(run.location.names())
        assert not list(path.rglob("*.tmp"))
        names = sorted(f.name for f in (path / "candidates").iterdir())
        assert names == [f"part-{part:05d}.parquet" for part in done]
    ballast.unlink()
    write(path)
    assert RunDirectory.open(path).is_complete
    assert RunDirectory.open(path).committed() == list(range(NUM_SHARDS))


class FailingStore(pafs.FileSystemHandler):
    """A filesystem that refuses writes of some files, and does the rest in a directory."""

    def __init__(self, base):
        self.base = base
        self.refuse = "nothing"

    def get_type_name(self):
        return "failing"

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    __hash__ = object.__hash__

    def _check(self, path):
        if self.refuse in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.base.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.base.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.base.create_dir(path, recursive=recursive)

    def delete_dir(self, path):
        self.base.delete_dir(path)

    def delete_dir_contents(self, path, missing_dir_ok=False):
        self.base.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self):
        raise NotImplementedError

    def delete_file(self, path):
        self.base.delete_file(path)

    def move(self, src, dest):
        self._check(dest)
        self.base.move(src, dest)

    def copy_file(self, src, dest):
        self.base.copy_file(src, dest)

    def open_input_stream(self, path):
        return self.base.open_input_stream(path)

    def open_input_file(self, path):
        return self.base.open_input_file(path)

    def open_output_stream(self, path, metadata):
        return self.base.open_output_stream(path, metadata=metadata)

    def open_append_stream(self, path, metadata):
        return self.base.open_append_stream(path, metadata=metadata)


@pytest.mark.parametrize(
    "refuse", ["strides/part-00001", "candidates/part-00001", "commits/part-00001"]
)
def test_an_object_store_that_fails_commits_nothing_of_the_shard(tmp_path, refuse):
    """Fails if a failure at any file of a commit leaves the shard visible or the run unusable."""
    base = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    handler = FailingStore(base)
    store = pafs.PyFileSystem(handler)
    with open_run(claim_run("run", filesystem=store)) as run:
        run.commit_shard(0, shard(0))
        handler.refuse = refuse.replace("-1", "-00001")
        with pytest.raises(RunError, match=r"cannot write shard 1 of run: .*No space left"):
            run.commit_shard(1, shard(1))
        assert [part for part, _ in run.shards("strides")] == [0]
        assert [f.name for f in (tmp_path / "run/candidates").iterdir()] == ["part-00000.parquet"]
        handler.refuse = "nothing"
        run.commit_shard(1, shard(1))
        assert [part for part, _ in run.shards("strides")] == [0, 1]


def test_a_disk_that_is_full_from_the_start_is_a_run_error(tmp_path):
    """Fails if a run that cannot even write its manifest shows a traceback or keeps the lock."""
    handler = FailingStore(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()))
    handler.refuse = "manifest.json"
    store = pafs.PyFileSystem(handler)
    with pytest.raises(RunError, match=r"cannot write manifest\.json of run: .*No space left"):
        open_run(claim_run("run", filesystem=store))
    handler.refuse = "nothing"
    open_run(claim_run("run", filesystem=store)).close()
