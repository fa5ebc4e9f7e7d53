"""The directory of one run: created or resumed under a lock, filled shard by shard, read anywhere.

Layout: manifest.json, config.toml, streams.parquet, summary.*, and per table a directory with one
file per shard; `commits/` holds the record of each committed shard (see `shards`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.fs as pafs

from ralm_engine.errors import InputError, RunError
from ralm_engine.schema import TABLES
from ralm_engine.store.claim import SHARD_TABLES, WHOLE_TABLES, RunClaim, claim_run
from ralm_engine.store.location import Location
from ralm_engine.store.manifest import (
    COMPLETE,
    INCOMPLETE,
    MANIFEST_NAME,
    RUNNING,
    Manifest,
    check_same_job,
    new_manifest,
    read_manifest,
    write_manifest,
    write_text,
)
from ralm_engine.store.parquet import EVERY_RANKER, FOOTER_KEYS, encode, read_parquet
from ralm_engine.store.shards import (
    COMMITS,
    ShardRecord,
    ShardWriter,
    committed_parts,
    part_file,
    part_number,
    read_record,
    storage_failure,
)

if TYPE_CHECKING:
    from pathlib import Path

# Commit records are a few hundred bytes: the wait for an object store is all there is to hide. On a
# local disk threads only fight over the interpreter.
_REMOTE_READ_THREADS = 16
CONFIG_NAME = "config.toml"


class RunDirectory:
    """One run. `create_or_resume` gives a writable one, `open` a read-only one.

    Attributes:
        location: where it lies.
        manifest: what manifest.json holds.
    """

    def __init__(self, location: Location, manifest: Manifest, claim: RunClaim | None) -> None:
        self.location = location
        self.manifest = manifest
        self._claim = claim
        self._footer = _footer(manifest, manifest)

    @classmethod
    def create_or_resume(
        cls,
        out: str | Path | Location | RunClaim,
        *,
        identity: Mapping[str, object],
        manifest: Mapping[str, object],
        config_toml: str,
    ) -> Self:
        """Starts a run, or goes on with the one that lies there.

        Args:
            out: local path or URI, or a claim that is held already; given up when this fails.
            identity: everything that must not change between start and resume, nested or flat:
                the configuration without execution keys, hashes of model, passages, index, input.
            manifest: further entries of manifest.json. `num_shards` (int) is the shard count of
                the finished run; `parquet.FOOTER_KEYS` are repeated in every Parquet footer;
                `session` (mapping) is kept per start, for what may differ between them.
            config_toml: the resolved configuration, kept as config.toml.

        Raises:
            InputError: see `claim_run`; or an earlier run there has another identity: each
                changed key is named with its old and new value.
            RunError: the directory cannot be written.
        """
        claim = out if isinstance(out, RunClaim) else claim_run(out)
        try:
            return cls._start(claim, identity, manifest, config_toml)
        except (OSError, pa.ArrowException) as error:
            claim.release()
            raise storage_failure(claim.location, MANIFEST_NAME, error) from error
        except BaseException:
            claim.release()
            raise

    @classmethod
    def _start(
        cls,
        claim: RunClaim,
        identity: Mapping[str, object],
        extra: Mapping[str, object],
        config_toml: str,
    ) -> Self:
        run = claim.location
        stored = new_manifest(identity=identity, extra=extra)
        if MANIFEST_NAME in run.names():
            stored = read_manifest(run)
            check_same_job(run, stored, identity)
        else:
            for name in (COMMITS, *SHARD_TABLES):
                (run / name).make_directory()
        sessions = stored["sessions"]
        assert isinstance(sessions, list)
        session = extra.get("session", {})
        assert isinstance(session, Mapping)
        sessions.append({"started_by": asdict(claim.lock.owner), **session})
        if stored["status"] != COMPLETE:
            stored["status"] = RUNNING
            write_manifest(run, stored)
        # After the manifest: until that exists, nothing here may look like somebody else's file.
        if CONFIG_NAME not in run.names():
            write_text(run / CONFIG_NAME, config_toml)
        self = cls(run, stored, claim)
        # This session's values: a later one may run newer code on the same job.
        self._footer = _footer(stored, extra)
        return self

    @classmethod
    def open(
        cls, path: str | Path | Location, *, filesystem: pafs.FileSystem | None = None
    ) -> Self:
        """Opens a run, finished or not, for reading; changes nothing there.

        Raises:
            InputError: no run there, or of a version this engine does not read.
        """
        location = Location.of(path, filesystem=filesystem)
        return cls(location, read_manifest(location), None)

    @property
    def num_shards(self) -> int | None:
        """Shards of the finished run; None when the job did not say."""
        planned = self.manifest.get("num_shards")
        return planned if isinstance(planned, int) else None

    @property
    def is_complete(self) -> bool:
        """Whether every shard is there and the run was finished."""
        return self.manifest["status"] == COMPLETE

    def committed(self) -> list[int]:
        """Sorted numbers of the shards that are there now; lists the directory anew."""
        return committed_parts(self.location)

    def writer(self) -> ShardWriter:
        """The part that commits shards; picklable, for worker processes."""
        lock = self._writable().lock
        return ShardWriter(run=self.location, token=lock.owner.token, footer=self._footer)

    def commit_shard(self, part: int, tables: Mapping[str, pa.Table]) -> ShardRecord:
        """Commits a shard from this process; see `ShardWriter.commit`."""
        return self.writer().commit(part, tables)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Writes a table of the whole run, `streams` or `summary`, as `<name>.parquet`.

        Raises:
            RunError: the table does not fit its schema, or the filesystem refused.
        """
        assert name in WHOLE_TABLES
        data = encode(name, table, footer=self._footer)
        self._write_whole(f"{name}.parquet", data)

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file of the run at once.

        Raises:
            RunError: the filesystem refused.
        """
        self._write_whole(name, pa.py_buffer(text.encode()))

    def _write_whole(self, name: str, data: pa.Buffer) -> None:
        try:
            (self.location / name).write(data)
        except (OSError, pa.ArrowException) as error:
            raise storage_failure(self.location, name, error) from error

    def update_manifest(self, entries: Mapping[str, object]) -> None:
        """Adds or replaces entries of manifest.json (planned against actual, failed shards, ...).

        Raises:
            RunError: the filesystem refused.
        """
        self._writable()
        self.manifest.update(entries)
        try:
            write_manifest(self.location, self.manifest)
        except (OSError, pa.ArrowException) as error:
            raise storage_failure(self.location, MANIFEST_NAME, error) from error

    def finish(self, entries: Mapping[str, object] | None = None) -> bool:
        """Writes the shard list with line counts and checksums into the manifest, once.

        Args:
            entries: further entries for the manifest.

        Returns:
            Whether all shards are there. If not, the status becomes `incomplete` and the same
            command goes on with the run.

        Raises:
            InputError: a commit record is damaged.
            RunError: the filesystem refused.
        """
        parts = self.committed()
        records = self._records(parts)
        whole = self.num_shards is None or parts == list(range(self.num_shards))
        self.update_manifest(
            {
                **(entries or {}),
                "status": COMPLETE if whole else INCOMPLETE,
                "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "shards": [record.as_dict() for record in records],
            }
        )
        return whole

    def _records(self, parts: Sequence[int]) -> list[ShardRecord]:
        if self.location.local is not None:
            return [self._record(part) for part in parts]
        with ThreadPoolExecutor(_REMOTE_READ_THREADS) as pool:
            return list(pool.map(self._record, parts))

    def shards(
        self, name: str, *, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yields (shard number, table) for each committed shard that has the table, in order.

        Args:
            name: a table that is kept per shard.
            columns: read only these.

        Raises:
            InputError: a file is missing, damaged, or of another version.
        """
        there = {part_number(file) for file in (self.location / name).names()}
        for part in self.committed():
            # Only where a file is absent does its shard's record have to be read.
            if part in there or name in self._record(part).tables:
                yield part, self.shard(name, part, columns=columns)

    def shard(self, name: str, part: int, *, columns: Sequence[str] | None = None) -> pa.Table:
        """The table of one committed shard.

        Raises:
            InputError: the file is missing, damaged, or of another version.
        """
        assert name in SHARD_TABLES
        return read_parquet(part_file(self.location, name, part), name, columns=columns)

    def _record(self, part: int) -> ShardRecord:
        try:
            return read_record(self.location, part)
        except (OSError, ValueError) as error:
            raise InputError(
                f"commit record of shard {part} of {self.location.label} is damaged: {error}"
            ) from error

    def tables(self, name: str, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All committed lines of a table, or the one table of a whole-run name.

        Raises:
            InputError: a file is missing, damaged, or of another version.
        """
        if name in WHOLE_TABLES:
            return read_parquet(self.location / f"{name}.parquet", name, columns=columns)
        found = [table for _, table in self.shards(name, columns=columns)]
        if not found:
            empty = TABLES[name].empty_table()
            named = [name for name in columns or empty.column_names if name != EVERY_RANKER]
            return empty.select(named)
        return pa.concat_tables(found, promote_options="default")

    def _writable(self) -> RunClaim:
        if self._claim is None:
            raise RunError(f"{self.location.label} was opened for reading")
        return self._claim

    def close(self) -> None:
        """Frees the lock; a second call does nothing."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _footer(manifest: Mapping[str, object], given: Mapping[str, object]) -> dict[str, str]:
    footer = {key: str(given[key]) for key in FOOTER_KEYS if key in given}
    return {**footer, "identity_hash": str(manifest["identity_hash"])}
