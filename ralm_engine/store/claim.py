"""Taking a directory for writing: no foreign files in it, no other writer, no leftovers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from ralm_engine.errors import InputError
from ralm_engine.schema import TABLES
from ralm_engine.store.atomic import is_temporary
from ralm_engine.store.location import Location
from ralm_engine.store.locks import LOCK_NAME, RunLock
from ralm_engine.store.manifest import MANIFEST_NAME, read_manifest
from ralm_engine.store.shards import COMMITS, remove_leftovers, storage_failure

WHOLE_TABLES = ("streams", "summary")
"""Tables of the whole run: one file each, not one a shard."""
SHARD_TABLES = tuple(name for name in TABLES if name not in WHOLE_TABLES)

# What a job may put into its run directory before the manifest exists.
_EARLY_NAMES = frozenset({"streams.arrow", "passages.arrow", "index", LOCK_NAME})


@dataclass(frozen=True, slots=True)
class RunClaim:
    """A directory that is ours to write: locked, free of leftovers, no foreign files in it."""

    location: Location
    lock: RunLock

    def release(self) -> None:
        """Gives the directory up; only for a claim that became no RunDirectory."""
        self.lock.release()


def claim_run(
    out: str | Path | Location,
    *,
    filesystem: pafs.FileSystem | None = None,
    expected: Collection[str] = _EARLY_NAMES,
) -> RunClaim:
    """Takes a new directory, or one of an earlier run, for writing.

    Needed on its own only by a job that has to write into the directory (under temporary names,
    while an earlier run may turn out to be of another job) before its identity is known.

    Args:
        out: local path or URI.
        filesystem: takes `out` as a path within it.
        expected: names that may lie there although there is no manifest yet.

    Raises:
        InputError: `out` is a file, holds files that are not of a run, or is being written by
            another process.
        RunError: the directory cannot be created or written.
    """
    run = Location.of(out, filesystem=filesystem)
    try:
        if run.kind() == pafs.FileType.File:
            raise InputError(f"{run.label} is a file", hint="give a directory as [run] out")
        run.make_directory()
        names = run.names()
        if MANIFEST_NAME in names:
            read_manifest(run)
        else:
            _refuse_foreign(run, names, expected)
        lock = RunLock.acquire(run)
        try:
            for name in names:
                if is_temporary(name):
                    (run / name).delete_file()
            remove_leftovers(run, SHARD_TABLES)
        except BaseException:
            lock.release()
            raise
    except (OSError, pa.ArrowException) as error:
        raise storage_failure(run, "the directory", error) from error
    return RunClaim(run, lock)


def _refuse_foreign(run: Location, names: Sequence[str], expected: Collection[str]) -> None:
    ours = {*expected, LOCK_NAME, COMMITS, *SHARD_TABLES}
    foreign = [name for name in names if name not in ours and not is_temporary(name)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(
            f'{run.label} is not empty and holds no run: "{foreign[0]}"{more}',
            hint="give an empty or new directory as [run] out",
        )
