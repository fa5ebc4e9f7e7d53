"""verify_run finds every kind of damage, and nothing in a sound run."""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ralm_engine.errors import InputError
from ralm_engine.schema import CANDIDATES, STRIDES
from ralm_engine.store.coverage import Coverage, shard_problems
from ralm_engine.store.verify import verify_run


def test_a_sound_run_has_no_problems(tmp_path, synthetic, write_run):
    """Fails if any check raises a false alarm, with empty streams among the data."""
    source = synthetic(streams={"a": 61, "empty": 0, "one": 1, "two": 2, "b": 38})
    assert verify_run(write_run(tmp_path / "run", source)) == []


def test_a_sound_run_without_warmup_has_no_problems(tmp_path, synthetic, write_run):
    """Fails if a first stride with no prefix (empty rank_nll) is called damaged."""
    assert verify_run(write_run(tmp_path / "run", synthetic(warmup=0))) == []


def test_an_unfinished_run_may_have_gaps(tmp_path, synthetic, write_run):
    """Fails if an unfinished run is blamed for shards that are still to come."""
    path = write_run(tmp_path / "run", synthetic(), skip={1}, finish=False)
    assert verify_run(path) == []


def test_no_run_is_an_input_error(tmp_path):
    """Fails if verify of an arbitrary directory passes."""
    with pytest.raises(InputError, match=r"no manifest\.json"):
        verify_run(tmp_path)


def _damage_missing(run):
    (run / "candidates/part-00001.parquet").unlink()


def _damage_truncated(run):
    file = run / "strides/part-00000.parquet"
    file.write_bytes(file.read_bytes()[:-10])


def _damage_flipped(run):
    file = run / "strides/part-00000.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def _damage_record(run):
    (run / "commits/part-00000.json").write_text("{")


def _damage_record_gone(run):
    (run / "commits/part-00002.json").unlink()


def _damage_streams(run):
    (run / "streams.parquet").unlink()


def _damage_manifest_entry(run):
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["shards"][0]["tables"]["strides"]["rows"] += 1
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_damage_missing, "candidates/part-00001.parquet is missing or unreadable"),
        (_damage_truncated, "strides/part-00000.parquet has"),
        (_damage_flipped, "has changed since it was committed"),
        (_damage_record, "commit record of shard 0 is damaged"),
        (_damage_record_gone, "shard 2 missing: no commit record"),
        (_damage_record_gone, "strides: shard 2 there without a commit record"),
        (_damage_streams, "streams.parquet"),
        (_damage_manifest_entry, "shard 0 differs from the manifest"),
    ],
)
def test_damaged_files_are_named(tmp_path, synthetic, write_run, damage, expected):
    """Fails if a damaged, missing or stray file goes unnoticed."""
    path = write_run(tmp_path / "run", synthetic())
    damage(path)
    assert any(expected in problem for problem in verify_run(path)), verify_run(path)


def test_a_file_of_a_newer_version_is_named(tmp_path, synthetic, write_run):
    """Fails if verify reads a table whose version it does not know."""
    path = write_run(tmp_path / "run", synthetic())
    file = path / "strides/part-00000.parquet"
    table = pq.read_table(file)
    newer = {**table.schema.metadata, b"ralm_engine.schema_version": b"99"}
    pq.write_table(table.replace_schema_metadata(newer), file)
    record = json.loads((path / "commits/part-00000.json").read_text())
    data = file.read_bytes()
    record["tables"]["strides"].update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (path / "commits/part-00000.json").write_text(json.dumps(record))
    assert any("schema version 99" in problem for problem in verify_run(path))


def _drop_candidate(strides, candidates):
    return strides, candidates[:3] + candidates[4:]


def _foreign_candidate(strides, candidates):
    return strides, [*candidates, {**candidates[-1], "stride": 10_000}]


def _double_rank(strides, candidates):
    return strides, [candidates[0], {**candidates[1], "rank": 0}, *candidates[2:]]


def _short_target(strides, candidates):
    return strides, [{**candidates[0], "target_nll": [1.0]}, *candidates[1:]]


def _short_baseline(strides, candidates):
    return [{**strides[0], "baseline_nll": [1.0]}, *strides[1:]], candidates


def _nan_stride(strides, candidates):
    values = [float("nan"), *strides[1]["baseline_nll"][1:]]
    return [strides[0], {**strides[1], "baseline_nll": values}, *strides[2:]], candidates


def _infinite_candidate(strides, candidates):
    values = [*candidates[2]["target_nll"][:-1], float("inf")]
    return strides, [*candidates[:2], {**candidates[2], "target_nll": values}, *candidates[3:]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_drop_candidate, "1 strides have more or fewer candidate lines than num_candidates"),
        (_foreign_candidate, "1 candidate lines belong to no stride"),
        (_double_rank, "candidate lines break the ranks 0, 1, 2"),
        (_short_target, "1 candidate lines have target_nll of another length"),
        (_short_baseline, "1 strides have baseline_nll of another length"),
        (_nan_stride, "1 strides are called ok in spite of a NaN"),
        (_infinite_candidate, "1 candidate lines are called ok in spite of a NaN"),
    ],
)
def test_tables_that_disagree_are_named(synthetic, change, expected):
    """Fails if a shard whose two tables contradict each other passes."""
    source = synthetic(no_hits=0.0)
    strides, candidates = change(source.strides, source.candidates)
    tables = [
        pa.Table.from_pylist(strides, schema=STRIDES),
        pa.Table.from_pylist(candidates, schema=CANDIDATES),
    ]
    problems = list(shard_problems("shard 0", *tables))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(1, 4), (5, 5)], []),
        ([(0, 5), (5, 5)], []),
        ([(5, 5), (1, 4)], []),
        ([(1, 4), (5, 4)], ["tokens 9..9 are scored by no stride"]),
        ([(1, 4), (6, 4)], ["tokens 5..5 are scored by no stride"]),
        ([(2, 3), (5, 5)], ["tokens 1..1 are scored by no stride"]),
        ([(1, 5), (5, 5)], ["tokens 5..5 are scored twice"]),
        ([(1, 9), (2, 2), (5, 5)], ["tokens 2..9 are scored twice"]),
        ([(1, 4), (5, 6)], ["tokens 10..10 lie past the end of the stream"]),
        ([], ["tokens 1..9 are scored by no stride"]),
    ],
)
def test_every_token_is_scored_exactly_once(spans, expected):
    """Fails if a gap, an overlap or a span past the end of a 10-token stream goes unnoticed."""
    coverage = Coverage()
    names = ["t"] * len(spans)
    begins, lengths = [list(x) for x in zip(*spans, strict=True)] if spans else ([], [])
    table = {
        "stream_id": pa.array(names, pa.string()),
        "target_begin": pa.array(begins, pa.int64()),
        "target_len": pa.array(lengths, pa.int32()),
    }
    coverage.add(pa.table(table))
    streams = pa.table({"stream_id": ["s", "t", "u"], "num_tokens": [0, 10, 1]})
    problems = list(coverage.problems(streams, finished=True))
    assert problems == [f'stream "t": {text}' for text in expected]


def test_a_stream_that_nobody_knows_is_named():
    """Fails if strides of a stream outside the streams table pass."""
    coverage = Coverage()
    coverage.add(pa.table({"stream_id": ["x"], "target_begin": [1], "target_len": [1]}))
    streams = pa.table(
        {"stream_id": pa.array([], pa.string()), "num_tokens": pa.array([], pa.int64())}
    )
    assert 'stream "x" has strides' in next(coverage.problems(streams, finished=False))
