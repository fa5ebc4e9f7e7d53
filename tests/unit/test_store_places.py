"""Where a run may lie: URIs, other filesystems, disks without locks; and what reads it there."""

from __future__ import annotations

import errno
import fcntl

import pyarrow.fs as pafs
import pytest

from ralm_engine.errors import InputError
from ralm_engine.schema import CANDIDATES, STRIDES
from ralm_engine.store.claim import claim_run
from ralm_engine.store.location import Location
from ralm_engine.store.locks import Owner
from ralm_engine.store.rundir import RunDirectory

IDENTITY = {"retrieval": {"k": 16, "engine": "native"}, "model_hash": "aa"}


def start(path, identity=IDENTITY, **manifest):
    return RunDirectory.create_or_resume(
        path, identity=identity, manifest=manifest, config_toml="[run]\nseed = 0\n"
    )


def files(path, *tables):
    return {f"{t}/{f.name}": f.read_bytes() for t in tables for f in (path / t).iterdir()}


def test_committing_costs_the_same_late_as_early(tmp_path, monkeypatch):
    """Fails if a commit lists or reads what was committed before (100,000 shards: quadratic)."""
    calls = []
    for name in ("names", "read", "size_bytes", "write"):
        real = getattr(Location, name)

        def counted(self, *args, _name=name, _real=real):
            calls.append(_name)
            return _real(self, *args)

        monkeypatch.setattr(Location, name, counted)
    tables = {"strides": STRIDES.empty_table(), "candidates": CANDIDATES.empty_table()}
    with start(tmp_path / "run") as run:
        manifest = (tmp_path / "run/manifest.json").stat().st_mtime_ns
        cost = []
        for part in range(6):
            calls.clear()
            run.commit_shard(part, tables)
            cost.append(sorted(calls))
        assert cost == [cost[0]] * 6
        assert "names" not in cost[0]
        assert cost[0].count("write") == 3
        assert (tmp_path / "run/manifest.json").stat().st_mtime_ns == manifest


def test_a_uri_is_a_place_too(tmp_path, synthetic):
    """Fails if file:// URIs and pyarrow filesystems are not taken."""
    with start(f"file://{tmp_path}/run") as run:
        run.commit_shard(0, synthetic().shards()[0])
    assert RunDirectory.open(tmp_path / "run").committed() == [0]
    with pytest.raises(InputError, match="nope://x is no place"):
        start("nope://x")


def test_a_run_on_another_filesystem_commits_resumes_and_locks(tmp_path, synthetic):
    """Fails if anything but the local fast path writes, reads or locks a run wrongly."""
    (tmp_path / "bucket").mkdir()
    remote = pafs.SubTreeFileSystem(str(tmp_path / "bucket"), pafs.LocalFileSystem())
    shards = synthetic().shards()
    claim = claim_run("runs/one", filesystem=remote)
    assert claim.location.local is None
    with start(claim, num_shards=2) as run:
        run.commit_shard(0, shards[0])
        with pytest.raises(InputError, match=r'is gone, delete "runs/one/\.lock"'):
            claim_run("runs/one", filesystem=remote)
    with start(claim_run("runs/one", filesystem=remote), num_shards=2) as run:
        run.commit_shard(1, shards[1])
        assert run.finish()
    assert RunDirectory.open("runs/one", filesystem=remote).is_complete
    with start(tmp_path / "local", num_shards=2) as run:
        for part in (0, 1):
            run.commit_shard(part, shards[part])
    tables = ("strides", "candidates")
    assert files(tmp_path / "bucket/runs/one", *tables) == files(tmp_path / "local", *tables)


def test_a_lock_file_of_a_dead_process_is_taken_over_without_flock(tmp_path):
    """Fails if a lock by content stays for ever, or one of another host is broken."""
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    (tmp_path / "run").mkdir()
    # No process has this number: Linux stops at 2^22.
    gone = Owner(host=Owner.myself().host, pid=2**22 + 1, process_start=1, since="then", token="x")
    (tmp_path / "run/.lock").write_bytes(gone.to_json())
    claim_run("run", filesystem=remote).release()
    elsewhere = Owner(host="elsewhere", pid=1, process_start=1, since="then", token="x")
    (tmp_path / "run/.lock").write_bytes(elsewhere.to_json())
    with pytest.raises(InputError, match="process 1 on elsewhere since then"):
        claim_run("run", filesystem=remote)


def test_a_local_disk_without_flock_still_has_one_writer(tmp_path, monkeypatch, synthetic):
    """Fails if a disk that refuses flock lets two writers in, stays locked, or stops workers."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with start(tmp_path / "run") as run:
        run.commit_shard(0, synthetic().shards()[0])
        with pytest.raises(InputError, match="is being written by"):
            start(tmp_path / "run")
        assert run.committed() == [0]
    assert not (tmp_path / "run/.lock").exists()
    start(tmp_path / "run").close()


def test_a_damaged_record_stops_the_finish(tmp_path, synthetic):
    """Fails if a manifest can list a shard whose record is torn."""
    with start(tmp_path / "run", num_shards=1) as run:
        run.commit_shard(0, synthetic().shards()[0])
        (tmp_path / "run/commits/part-00000.json").write_text("{")
        with pytest.raises(InputError, match=r"record of shard 0 .* is damaged"):
            run.finish()
        assert not RunDirectory.open(tmp_path / "run").is_complete


def test_pandas_polars_and_duckdb_read_the_tables_as_they_are(tmp_path, synthetic, write_run):
    """Fails if one of the three readers gives other lines or values than pyarrow."""
    source = synthetic()
    path = write_run(tmp_path / "run", source)
    expected = RunDirectory.open(path).tables("candidates")
    lists = expected.column("target_nll").to_pylist()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(path / "candidates")
    assert [list(x) for x in frame["target_nll"]] == lists
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.read_parquet(path / "candidates/*.parquet")
    assert frame["target_nll"].to_list() == lists
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    options = "filename = true, file_row_number = true"
    source_sql = f"read_parquet('{path}/candidates/*.parquet', {options})"
    query = f"select target_nll from {source_sql} order by filename, file_row_number"
    assert [row[0] for row in duckdb.sql(query).fetchall()] == lists
