"""Arrow IPC files that appear whole or not at all, and are read memory-mapped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.errors import InputError, RunError
from ralm_engine.store.atomic import temporary_name

FORMAT_KEY = b"ralm_engine.format"
VERSION_KEY = b"ralm_engine.format_version"


@contextlib.contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """Gives a temporary path beside `out`; on success it is flushed and renamed to `out`.

    Raises:
        RunError: the disk is full or cannot be written; `out` is then as it was before.
    """
    aside = out.with_name(temporary_name(out.name))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        aside.replace(out)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


class MappedBatches:
    """The record batches of an Arrow file as one table with random access to rows.

    Args:
        path: the file.
        what: what a user calls it, for errors.
        format_name: the format the file must name.
        format_version: the newest version this program reads.

    Raises:
        InputError: missing, unfinished, cut off, of another format or of a newer version.
    """

    def __init__(self, path: Path, *, what: str, format_name: str, format_version: int) -> None:
        self.path = path
        try:
            self._map = pa.memory_map(str(path), "r")
            self._reader = pa.ipc.open_file(self._map)
            self.batches = [
                self._reader.get_batch(i) for i in range(self._reader.num_record_batches)
            ]
        except (OSError, pa.ArrowInvalid) as error:
            if isinstance(error, FileNotFoundError):
                raise InputError(f"{what} {path} does not exist") from error
            first = str(error).split("\n", 1)[0]
            raise InputError(
                f"{what} {path} is unfinished or damaged ({first})", hint="delete it and build anew"
            ) from error
        self.metadata: dict[bytes, bytes] = dict(self._reader.schema.metadata or {})
        self._check_format(what, format_name, format_version)
        self.begin = np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64)

    def _check_format(self, what: str, name: str, version: int) -> None:
        found = self.metadata.get(FORMAT_KEY, b"").decode()
        if found != name:
            raise InputError(
                f"{self.path} is no {what}: its format is {found or 'unnamed'}, expected {name}"
            )
        found_version = int(self.metadata.get(VERSION_KEY, b"0"))
        if found_version > version:
            raise InputError(
                f"{what} {self.path} has format version {found_version}, this program reads up to "
                f"{version}",
                hint="use the program that wrote it, or build it anew",
            )

    @property
    def num_rows(self) -> int:
        """Rows of all batches together."""
        return int(self.begin[-1])

    def trailer(self, key: bytes, *, what: str) -> str:
        """What the writer attached to the last batch, once all others were written.

        Raises:
            InputError: nothing is attached there.
        """
        last = self._reader.num_record_batches - 1
        attached = self._reader.get_batch_with_custom_metadata(last)[1] if last >= 0 else None
        if attached is None or key not in attached:
            raise InputError(
                f"{what} {self.path} has no {key.decode()} at its end", hint="build it anew"
            )
        value: bytes = attached[key]
        return value.decode()

    def locate(self, row: int) -> tuple[pa.RecordBatch, int]:
        """The batch that holds a row, and the row's place in it.

        Raises:
            IndexError: no such row.
        """
        if not 0 <= row < self.num_rows:
            raise IndexError(f"row {row} is outside 0..{self.num_rows - 1}")
        batch = int(np.searchsorted(self.begin, row, side="right")) - 1
        return self.batches[batch], row - int(self.begin[batch])

    def value(self, name: str, row: int) -> Any:
        """One cell as a Python value."""
        batch, place = self.locate(row)
        return batch.column(name)[place].as_py()

    def values(self, name: str, begin: int, end: int) -> list[Any]:
        """The cells of rows begin..end of a column as Python values."""
        found: list[Any] = []
        for batch, at in zip(self.batches, self.begin, strict=False):
            low, high = max(begin - int(at), 0), min(end - int(at), batch.num_rows)
            if low < high:
                found.extend(batch.column(name).slice(low, high - low).to_pylist())
        return found

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, memory-mapped."""
        kind = self._reader.schema.field(name).type
        return pa.chunked_array([batch.column(name) for batch in self.batches], type=kind)

    def numpy(self, name: str) -> npt.NDArray[Any]:
        """A whole column of numbers as one NumPy array."""
        numbers: npt.NDArray[Any] = self.column(name).to_numpy()
        return numbers
