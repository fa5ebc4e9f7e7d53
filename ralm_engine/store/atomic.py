"""Files that appear whole or not at all, on a local disk."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"
Buffer: TypeAlias = bytes | pa.Buffer


def temporary_name(name: str) -> str:
    """A hidden name beside `name` that no reader of `*.parquet` picks up."""
    return f".{name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether `temporary_name` made this name, so that a crashed writer left it behind."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


def write_file_atomically(path: Path, data: Buffer) -> None:
    """Writes `data` aside in the same directory, flushes it to the disk, and renames it.

    Raises:
        OSError: the disk is full or the directory is gone; `path` is then as it was before.
    """
    aside = path.with_name(temporary_name(path.name))
    try:
        _write_flushed(aside, memoryview(data))
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    _flush_directory(path.parent)


def _write_flushed(path: Path, view: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        begin = 0
        # One write call moves at most 2 GiB - 4 KiB on Linux.
        while begin < view.nbytes:
            begin += os.write(descriptor, view[begin:])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
