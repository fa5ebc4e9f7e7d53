"""A place for files: a local directory, or a directory of any pyarrow filesystem."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from ralm_engine.errors import InputError
from ralm_engine.store.atomic import Buffer, temporary_name, write_file_atomically

# Object stores publish an object when its upload ends, and rename by copying it: there a temporary
# name costs twice the traffic and protects nothing. The commit record guards readers everywhere.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


@dataclass(frozen=True, slots=True)
class Location:
    """A directory (or file) of a filesystem; cheap to copy and to pickle.

    Attributes:
        filesystem: the pyarrow filesystem.
        path: absolute path or key within it, without a trailing slash.
        label: the name people gave it, for messages.
    """

    filesystem: pafs.FileSystem
    path: str
    label: str

    @classmethod
    def of(
        cls, target: str | Path | Location, *, filesystem: pafs.FileSystem | None = None
    ) -> Location:
        """Resolves a local path or a URI (`s3://`, `gs://`, `hdfs://`, `file://`, ...).

        Args:
            target: the path or URI; a Location is returned as it is.
            filesystem: takes `target` as a path within this filesystem.

        Raises:
            InputError: a URI of a kind that pyarrow does not know.
        """
        if isinstance(target, Location):
            return target
        label = str(target)
        if filesystem is not None:
            return cls(filesystem, label.rstrip("/"), label)
        if isinstance(target, str) and "://" in target:
            try:
                found, path = pafs.FileSystem.from_uri(target)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{target} is no place to read from or write to: {error}",
                    hint="give a local path or a URI such as s3://bucket/run or file:///data/run",
                ) from error
            return cls(found, path.rstrip("/"), label)
        return cls(pafs.LocalFileSystem(), str(Path(target).expanduser().absolute()), label)

    @property
    def local(self) -> Path | None:
        """The directory as a local path; None on any other filesystem."""
        return Path(self.path) if isinstance(self.filesystem, pafs.LocalFileSystem) else None

    def __truediv__(self, name: str) -> Location:
        return Location(self.filesystem, f"{self.path}/{name}", f"{self.label.rstrip('/')}/{name}")

    def kind(self) -> pafs.FileType:
        """What is there: File, Directory, NotFound."""
        return self.filesystem.get_file_info(self.path).type

    def size_bytes(self) -> int | None:
        """Size of the file there; None when there is none."""
        info = self.filesystem.get_file_info(self.path)
        return int(info.size) if info.type == pafs.FileType.File else None

    def names(self) -> list[str]:
        """Sorted names of what the directory holds; empty when it does not exist."""
        local = self.local
        if local is not None:
            return sorted(entry.name for entry in local.iterdir()) if local.is_dir() else []
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def make_directory(self) -> None:
        """Creates the directory and its parents; no error when it exists."""
        self.filesystem.create_dir(self.path, recursive=True)

    def delete_file(self) -> None:
        """Deletes the file; no error when another process was faster."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path)

    def read(self) -> pa.Buffer:
        """The bytes of the file.

        Copied, not memory-mapped: a map of a file that is cut short later kills the process.

        Raises:
            FileNotFoundError: no such file.
        """
        with self.filesystem.open_input_file(self.path) as stream:
            return stream.read_buffer()

    def write(self, data: Buffer) -> None:
        """Writes the whole file so that it appears at once.

        Atomic and flushed to the disk locally. Elsewhere the file is written under a temporary name
        and moved, or, on object stores, uploaded in one piece.

        Raises:
            OSError: the filesystem refused; what was there before still is.
        """
        local = self.local
        if local is not None:
            write_file_atomically(local, data)
            return
        aside = self
        if self.filesystem.type_name not in _OBJECT_STORES:
            parent, _, name = self.path.rpartition("/")
            aside = Location(self.filesystem, f"{parent}/{temporary_name(name)}", self.label)
        try:
            with self.filesystem.open_output_stream(aside.path) as stream:
                stream.write(memoryview(data))
            if aside is not self:
                self.filesystem.move(aside.path, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.delete_file()
            raise
