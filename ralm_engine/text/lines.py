"""Text files, plain or compressed, read line by line with errors that name the line."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from ralm_engine.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSIONS = (".gz", ".zst", ".xz")
_BOM = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def split_suffix(path: Path) -> tuple[str, str]:
    """The format suffix and the compression suffix of a name, both lower case, maybe empty."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        return (suffixes[-2] if len(suffixes) > 1 else ""), suffixes[-1]
    return (suffixes[-1] if suffixes else ""), ""


def stem_of(path: Path) -> str:
    """The file name without its format and compression suffixes."""
    name = path.name
    for suffix in reversed(split_suffix(path)):
        name = name[: len(name) - len(suffix)]
    return name or path.name


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (1-based number, line without its line end) of a UTF-8 file; a BOM is dropped.

    Only a newline ends a line, so that texts may hold any other separator.

    Raises:
        InputError: the file is unreadable, damaged or cut off, or a line is not UTF-8.
    """
    number = 0
    try:
        with _open(path) as stream:
            for raw in stream:
                number += 1
                line = raw.removeprefix(_BOM) if number == 1 else raw
                yield number, _decode(line.rstrip(b"\r\n"), path, number)
    except _DAMAGED as error:
        raise _damaged(path, number, error) from error
    except OSError as error:
        raise unreadable(path, error) from error


def read_text(path: Path) -> str:
    """The whole text of a UTF-8 file, line ends untouched; a BOM is dropped.

    Raises:
        InputError: as `read_lines`.
    """
    parts: list[bytes] = []
    try:
        with _open(path) as stream:
            # 16 MiB at a time, so that a damaged file still tells how far it was readable.
            while part := stream.read(1 << 24):
                parts.append(part)
    except _DAMAGED as error:
        raise _damaged(path, b"".join(parts).count(b"\n"), error) from error
    except OSError as error:
        raise unreadable(path, error) from error
    raw = b"".join(parts).removeprefix(_BOM)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        raise _not_utf8(path, raw.count(b"\n", 0, begin) + 1, error, begin) from error


def unreadable(path: Path, error: OSError) -> InputError:
    """The error of a file that the operating system does not let us read."""
    return InputError(f"cannot read {path}: {error.strerror or error}")


def is_unicode(text: str) -> bool:
    """Whether the text is free of lone surrogates, so that UTF-8 can carry it."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _open(path: Path) -> io.BufferedIOBase:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        return gzip.open(path, "rb")
    if compression == ".xz":
        return lzma.open(path, "rb")
    if compression == ".zst":
        return io.BufferedReader(_ZstdStream(path))
    return path.open("rb")


class _ZstdStream(io.RawIOBase):
    """Decompresses any number of frames; zstandard's own reader takes a cut-off one for whole."""

    def __init__(self, path: Path) -> None:
        self._source = path.open("rb")
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        while not self._ready and self._fill():
            pass
        size = min(len(self._ready), len(target))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _fill(self) -> bool:
        """Decompresses the next piece; False at a sound end of the file."""
        # 16 KiB at a time bounds what one call can expand to on ordinary text.
        raw = (self._frame.unused_data if self._frame.eof else b"") or self._source.read(1 << 14)
        if not raw:
            if self._in_frame:
                raise EOFError("the last frame has no end")
            return False
        if self._frame.eof:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(self._frame.decompress(raw))
        self._in_frame = not self._frame.eof
        return True


def _decode(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, error, 0) from error


def _not_utf8(path: Path, number: int, error: UnicodeDecodeError, begin: int) -> InputError:
    return InputError(
        f"{path}, line {number}: byte 0x{error.object[error.start]:02x} at column "
        f"{error.start - begin + 1} is not UTF-8",
        hint="convert the file to UTF-8",
    )


def _damaged(path: Path, number: int, error: Exception) -> InputError:
    return InputError(
        f"{path}: the compressed data is damaged or cut off after line {number} ({error})",
        hint="copy or download the file again",
    )
