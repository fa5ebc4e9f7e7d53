"""Checks a run directory file by file, then what its tables say (see `coverage`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.store.claim import SHARD_TABLES
from ralm_engine.store.coverage import Coverage, shard_problems
from ralm_engine.store.location import Location
from ralm_engine.store.parquet import conform, decode
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.store.shards import (
    FileRecord,
    ShardRecord,
    part_file,
    part_number,
    read_record,
)


def verify_run(path: str | Path | Location) -> list[str]:
    """Finds what is wrong with a run, finished or not.

    Every committed file is read once: its size, sha256, schema and version; strides against their
    candidates; every token of every stream scored exactly once (at most once in an unfinished run).

    Returns:
        One line a problem; empty when the run is sound.

    Raises:
        InputError: no run there, or a manifest that cannot be read.
    """
    run = RunDirectory.open(path)
    problems = []
    listed = _listed_shards(run)
    committed = run.committed()
    coverage = Coverage()
    for part in committed:
        record, found = _check_record(run, part, listed)
        problems += found
        if record is not None:
            problems += _check_shard(run, record, coverage)
    if run.is_complete:
        problems += _check_complete(run, committed, listed)
    problems += _check_streams(run, coverage)
    return problems


def _listed_shards(run: RunDirectory) -> dict[int, object]:
    shards = run.manifest["shards"]
    assert isinstance(shards, list)
    return {int(shard["part"]): shard for shard in shards}


def _check_record(
    run: RunDirectory, part: int, listed: dict[int, object]
) -> tuple[ShardRecord | None, list[str]]:
    try:
        record = read_record(run.location, part)
    except (OSError, ValueError) as error:
        return None, [f"commit record of shard {part} is damaged: {error}"]
    if record.part != part:
        return record, [f"commit record of shard {part} says it is of shard {record.part}"]
    if run.is_complete and listed.get(part) != record.as_dict():
        return record, [f"commit record of shard {part} differs from the manifest"]
    return record, []


def _check_complete(
    run: RunDirectory, committed: list[int], listed: dict[int, object]
) -> Iterator[str]:
    """What only a finished run must hold: all shards, and nothing else."""
    expected = set(listed) if run.num_shards is None else set(range(run.num_shards))
    missing = sorted((expected | set(listed)) - set(committed))
    if missing:
        yield f"{_some(missing)} missing: no commit record"
    known = set(committed)
    for table in SHARD_TABLES:
        numbers = (part_number(name) for name in (run.location / table).names())
        stray = sorted(number for number in numbers if number is not None and number not in known)
        if stray:
            yield f"{table}: {_some(stray)} there without a commit record"


def _some(parts: list[int]) -> str:
    shown = ", ".join(map(str, parts[:5]))
    more = f" and {len(parts) - 5} more" if len(parts) > 5 else ""
    return f"shard {shown}{more}"


def _check_shard(run: RunDirectory, record: ShardRecord, coverage: Coverage) -> Iterator[str]:
    tables: dict[str, pa.Table] = {}
    for name, expected in record.tables.items():
        location = part_file(run.location, name, record.part)
        table, problem = _check_file(name, location, expected)
        if problem:
            yield problem
        if table is not None:
            tables[name] = table
    if "strides" in tables:
        coverage.add(tables["strides"])
        if "candidates" in tables:
            label = f"shard {record.part}"
            yield from shard_problems(label, tables["strides"], tables["candidates"])


def _check_file(name: str, location: Location, expected: FileRecord) -> tuple[pa.Table | None, str]:
    try:
        data = location.read()
    except OSError as error:
        return None, f"{location.label} is missing or unreadable: {error}"
    if data.size != expected.bytes:
        return None, f"{location.label} has {data.size} bytes, committed were {expected.bytes}"
    if hashlib.sha256(data).hexdigest() != expected.sha256:
        return None, f"{location.label} has changed since it was committed (sha256 differs)"
    try:
        table = conform(name, decode(name, data, label=location.label))
    except InputError as error:
        return None, str(error)
    if table.num_rows != expected.rows:
        return table, f"{location.label} has {table.num_rows} lines, committed were {expected.rows}"
    return table, ""


def _check_streams(run: RunDirectory, coverage: Coverage) -> list[str]:
    try:
        streams = run.tables("streams", columns=["stream_id", "num_tokens"])
    except InputError as error:
        return [str(error)]
    return list(coverage.problems(streams, finished=run.is_complete))
