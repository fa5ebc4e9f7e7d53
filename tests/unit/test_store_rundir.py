"""The run directory: start, resume, refusals, commits, footers, versions, other readers."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ralm_engine.errors import InputError, RunError
from ralm_engine.schema import CANDIDATES, SCHEMA_VERSION, STRIDES, VERSION_KEY
from ralm_engine.store.claim import claim_run
from ralm_engine.store.parquet import decode
from ralm_engine.store.rundir import RunDirectory

IDENTITY = {"retrieval": {"k": 16, "engine": "native"}, "model_hash": "aa"}


def start(path, identity=IDENTITY, **manifest):
    return RunDirectory.create_or_resume(
        path, identity=identity, manifest=manifest, config_toml="[run]\nseed = 0\n"
    )


def files(path, *tables):
    return {f"{t}/{f.name}": f.read_bytes() for t in tables for f in (path / t).iterdir()}


def test_a_changed_k_is_refused_by_name_with_both_values(tmp_path):
    """Probe 28. Fails if a resumed run may change what its tables mean, or the message hides it."""
    start(tmp_path / "run").close()
    changed = {"retrieval": {"k": 8, "engine": "native"}, "model_hash": "aa"}
    with pytest.raises(InputError, match=r"retrieval\.k \(16 -> 8\)"):
        start(tmp_path / "run", changed)
    start(tmp_path / "run").close()


def test_every_changed_key_is_named(tmp_path):
    """Fails if only the first difference is told, or an added or removed key goes unnoticed."""
    start(tmp_path / "run").close()
    with pytest.raises(InputError) as caught:
        start(tmp_path / "run", {"retrieval": {"k": 8}, "model_hash": "aa", "bos": "model"})
    assert 'bos (absent -> "model")' in str(caught.value)
    assert 'retrieval.engine ("native" -> absent)' in str(caught.value)


def test_tuples_and_lists_are_the_same_identity(tmp_path):
    """Fails if a value that JSON changes in form counts as a change of the job."""
    start(tmp_path / "run", {"paths": ("a", "b")}).close()
    start(tmp_path / "run", {"paths": ["a", "b"]}).close()


def test_a_second_process_is_refused_while_the_first_lives(tmp_path):
    """Probe 28. Fails if two processes write one run, or the lock outlives a killed process."""
    program = (
        "import sys, time\n"
        "from ralm_engine.store.rundir import RunDirectory\n"
        "run = RunDirectory.create_or_resume(sys.argv[1], identity={}, manifest={},"
        " config_toml='')\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    path = tmp_path / "run"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match=f"is being written by process {first.pid} on"):
            start(path, {})
        first.kill()
    start(path, {}).close()


def test_a_second_opening_in_the_same_process_is_refused(tmp_path):
    """Fails if the lock does not hold against its own process."""
    with start(tmp_path / "run"), pytest.raises(InputError, match="is being written by"):
        start(tmp_path / "run")


def test_a_refused_resume_frees_the_lock(tmp_path):
    """Fails if an error on the way leaves the run locked."""
    start(tmp_path / "run").close()
    for _ in range(2):
        with pytest.raises(InputError, match="another job"):
            start(tmp_path / "run", {"x": 1})


@pytest.mark.parametrize("name", ["thesis.tex", "manifest.yaml", ".git"])
def test_a_directory_with_foreign_files_is_refused(tmp_path, name):
    """Fails if a run is written among files that are not of a run."""
    (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=f'not empty and holds no run: "{name}"'):
        start(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_manifest_of_another_program_is_refused(tmp_path):
    """Fails if any manifest.json counts as ours."""
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3}')
    with pytest.raises(InputError, match="is not of a run"):
        start(tmp_path)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    """Fails if `out` may be a file."""
    (tmp_path / "run").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        start(tmp_path / "run")


def test_a_claim_lets_the_job_write_first_and_protects_the_earlier_run(tmp_path):
    """Fails if a claimed directory with early files is refused, or the claim is no lock."""
    claim = claim_run(tmp_path / "run")
    (tmp_path / "run/.streams.arrow.0.tmp").write_text("x")
    with pytest.raises(InputError, match="is being written"):
        claim_run(tmp_path / "run")
    with start(claim):
        assert (tmp_path / "run/.streams.arrow.0.tmp").exists()
    with start(tmp_path / "run"):
        assert not (tmp_path / "run/.streams.arrow.0.tmp").exists()


def test_readers_see_committed_shards_only(tmp_path, synthetic):
    """Fails if a data file without its record is read, or survives the next opening."""
    source = synthetic()
    with start(tmp_path / "run") as run:
        run.commit_shard(0, source.shards()[0])
        stray = tmp_path / "run/candidates/part-00001.parquet"
        stray.write_bytes((tmp_path / "run/candidates/part-00000.parquet").read_bytes())
        torn = tmp_path / "run/strides/.part-00001.parquet.0.tmp"
        torn.write_bytes(b"PAR1")
        reader = RunDirectory.open(tmp_path / "run")
        assert [part for part, _ in reader.shards("candidates")] == [0]
        assert reader.tables("candidates").num_rows == source.shards()[0]["candidates"].num_rows
        assert stray.exists()
    with start(tmp_path / "run"):
        assert not stray.exists()
        assert not torn.exists()


def test_the_same_data_gives_the_same_bytes_whatever_the_order_and_process(tmp_path, synthetic):
    """Fails if times, chunking, order of commits or a resume leak into strides or candidates."""
    shards = synthetic().shards()
    with start(tmp_path / "one", seed=0) as run:
        for part, tables in enumerate(shards):
            run.commit_shard(part, tables)
    for part, tables in reversed(list(enumerate(shards))):
        with start(tmp_path / "two", seed=0) as run:
            pieces = {
                name: pa.concat_tables([table.slice(0, 1), table.slice(1)])
                for name, table in tables.items()
            }
            run.commit_shard(part, pieces)
    tables = ("strides", "candidates")
    assert files(tmp_path / "one", *tables) == files(tmp_path / "two", *tables)


def test_the_first_commit_of_a_shard_wins(tmp_path, synthetic):
    """Fails if a task that is run twice replaces a committed shard."""
    shards = synthetic().shards()
    with start(tmp_path / "run") as run:
        first = run.commit_shard(0, shards[0])
        assert run.commit_shard(0, shards[1]) == first
        assert run.shard("strides", 0).num_rows == shards[0]["strides"].num_rows


def test_a_shard_without_lines_has_the_same_schema(tmp_path):
    """Probe 26. Fails if an empty shard changes or loses columns."""
    with start(tmp_path / "run") as run:
        empty = {"strides": STRIDES.empty_table(), "candidates": CANDIDATES.empty_table()}
        run.commit_shard(0, empty)
        assert run.shard("candidates", 0).schema.equals(CANDIDATES)
        assert pq.read_schema(tmp_path / "run/strides/part-00000.parquet").equals(STRIDES)


def test_no_shard_at_all_reads_as_an_empty_table(tmp_path):
    """Fails if a run without a shard has no columns."""
    with start(tmp_path / "run") as run:
        assert run.tables("candidates").schema.equals(CANDIDATES)
        assert run.tables("strides", columns=["stride"]).column_names == ["stride"]


def test_a_worker_without_its_driver_commits_nothing(tmp_path, synthetic):
    """Fails if a worker that outlived its driver writes into the run of the next driver."""
    tables = synthetic().shards()[0]
    first = start(tmp_path / "run")
    orphan = first.writer()
    first.close()
    with start(tmp_path / "run") as second:
        with pytest.raises(RunError, match="no longer ours"):
            orphan.commit(0, tables)
        assert second.committed() == []
        second.writer().commit(0, tables)
        assert second.committed() == [0]


def test_finish_lists_the_shards_and_tells_whether_all_are_there(tmp_path, synthetic):
    """Fails if the manifest's shard list is not that of the files, or a gap counts as complete."""
    shards = synthetic().shards()
    with start(tmp_path / "run", num_shards=2, plan={"rows": 3}) as run:
        run.commit_shard(1, shards[1])
        assert not run.finish()
        assert json.loads((tmp_path / "run/manifest.json").read_text())["status"] == "incomplete"
    with start(tmp_path / "run", num_shards=2) as run:
        run.commit_shard(0, shards[0])
        assert run.finish({"actual": {"rows": 4}})
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["plan"] == {"rows": 3}
    assert manifest["actual"] == {"rows": 4}
    assert len(manifest["sessions"]) == 2
    rows = [shard["tables"]["strides"]["rows"] for shard in manifest["shards"]]
    assert rows == [table["strides"].num_rows for table in shards[:2]]
    assert RunDirectory.open(tmp_path / "run").is_complete


def test_the_footer_names_what_made_the_file(tmp_path, synthetic):
    """Fails if a shard on its own does not say which job, code, model and seed it is from."""
    with start(tmp_path / "run", seed=7, code_revision="abc", model_hash="m") as run:
        run.commit_shard(0, synthetic().shards()[0])
    footer = pq.read_schema(tmp_path / "run/candidates/part-00000.parquet").metadata
    assert footer[b"ralm_engine.seed"] == b"7"
    assert footer[b"ralm_engine.code_revision"] == b"abc"
    assert footer[b"ralm_engine.model_hash"] == b"m"
    assert len(footer[b"ralm_engine.identity_hash"]) == 64
    assert footer[VERSION_KEY] == str(SCHEMA_VERSION).encode()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.drop_columns(["score"]), 'lacks the column "score"'),
        (lambda t: t.append_column("colour", t["score"]), "unknown columns colour"),
        (lambda t: t.set_column(4, "score", pa.array(["x"] * t.num_rows)), 'column "score"'),
        (lambda t: t.set_column(4, "score", pa.nulls(t.num_rows, pa.float32())), "nulls"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, synthetic, change, expected):
    """Fails if a table with lost, extra, mistyped or null columns reaches the disk."""
    tables = synthetic().shards()[0]
    with start(tmp_path / "run") as run:
        with pytest.raises(RunError, match=expected):
            run.commit_shard(0, {**tables, "candidates": change(tables["candidates"])})
        assert run.committed() == []
        assert list((tmp_path / "run/strides").iterdir()) == []


def test_extra_rankers_keep_their_columns_and_absent_options_are_null(tmp_path, synthetic):
    """Fails if ranker_* columns are lost, or a nullable column has to be given."""
    tables = synthetic(rankers=("b", "a")).shards()[0]
    given = tables["candidates"].drop_columns(["target_rank"])
    with start(tmp_path / "run") as run:
        run.commit_shard(0, {**tables, "candidates": given})
        stored = run.tables("candidates")
    assert stored.column_names[-2:] == ["ranker_a", "ranker_b"]
    assert stored.column("ranker_a").to_pylist() == given.column("ranker_a").to_pylist()
    assert stored.column("target_rank").null_count == stored.num_rows


def _with_version(table, version):
    sink = pa.BufferOutputStream()
    metadata = {**(table.schema.metadata or {}), VERSION_KEY: str(version).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue()


def test_the_previous_version_is_read_and_what_it_lacked_is_null(synthetic):
    """Fails if files of the version before this one cannot be read any more."""
    table = synthetic().shards()[0]["candidates"]
    old = _with_version(table.drop_columns(["target_entropy"]), SCHEMA_VERSION - 1)
    read = decode("candidates", old, label="old")
    assert read.schema.equals(CANDIDATES)
    assert read.column("target_entropy").null_count == table.num_rows
    assert read.column("score").equals(table.column("score"))


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 2])
def test_other_versions_are_refused_naming_both_sides(synthetic, version):
    """Fails if a table of an unknown version is read as if it were of ours."""
    data = _with_version(synthetic().shards()[0]["candidates"], version)
    with pytest.raises(InputError, match=f"schema version {version}, this engine reads"):
        decode("candidates", data, label="x.parquet")


def test_a_file_that_is_no_parquet_or_not_ours_is_an_input_error():
    """Fails if damage shows as a traceback of pyarrow."""
    with pytest.raises(InputError, match=r"x\.parquet is no readable Parquet"):
        decode("strides", pa.py_buffer(b"PAR1 nonsense"), label="x.parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(InputError, match="carries no"):
        decode("strides", sink.getvalue(), label="x.parquet")


def test_opening_for_reading_changes_nothing_and_cannot_commit(tmp_path, synthetic):
    """Fails if a reader locks, cleans or writes the run of another process."""
    start(tmp_path / "run").close()
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "run").rglob("*")}
    with RunDirectory.open(tmp_path / "run") as run:
        with pytest.raises(RunError, match="opened for reading"):
            run.commit_shard(0, synthetic().shards()[0])
        assert run.num_shards is None
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "run").rglob("*")} == before
