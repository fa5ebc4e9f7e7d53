"""Content hashes: of files, directories and plain values."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from ralm_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def hash_file(path: Path) -> str:
    """Hex sha256 of the bytes of a file, read in constant memory.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def hash_directory(path: Path) -> str:
    """Hex sha256 over the relative names and contents of all files below a directory.

    Where the directory lies, modification times and empty directories do not matter. A name takes
    part with its length, so that moving bytes from a name to a content changes the hash.

    Raises:
        InputError: no such directory, or a file in it cannot be read.
    """
    if not path.is_dir():
        raise InputError(f"{path} is no directory")
    total = hashlib.sha256()
    files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*"))
    for name, file in files:
        if file.is_file():
            encoded = name.encode("utf-8", "surrogateescape")
            total.update(len(encoded).to_bytes(8, "little") + encoded)
            total.update(bytes.fromhex(hash_file(file)))
    return total.hexdigest()


def hash_path(path: Path) -> str:
    """`hash_file` of a file, `hash_directory` of a directory.

    Raises:
        InputError: there is neither, or it cannot be read.
    """
    return hash_directory(path) if path.is_dir() else hash_file(path)


def hash_value(value: Mapping[str, object]) -> str:
    """Hex sha256 of a JSON-like value; the order of keys does not matter.

    Raises:
        TypeError: something in it is no JSON value.
    """
    return hashlib.sha256(canonical_json(value)).hexdigest()


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
