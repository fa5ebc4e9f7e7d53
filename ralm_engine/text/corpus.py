"""Corpus readers: every format of documents becomes (id, title, text)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralm_engine.errors import InputError
from ralm_engine.text.formats import (
    Record,
    read_jsonl_records,
    read_parquet_records,
    read_tsv_records,
)
from ralm_engine.text.hub import HUB_PREFIX, hub_stem, read_hub_records
from ralm_engine.text.lines import COMPRESSIONS, read_text, split_suffix, stem_of, unreadable

_RECORD_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": read_jsonl_records,
    ".parquet": read_parquet_records,
    ".tsv": read_tsv_records,
}
SUFFIXES = (".txt", *_RECORD_READERS)


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus, as it stands in its file.

    Attributes:
        id: the source's own id, or `<stem>-<number>`; a `.txt` file is one document, `<stem>`.
        title: empty where the source has none.
        text: free of lone surrogates.
    """

    id: str
    title: str
    text: str


def as_paths(value: str | Sequence[str]) -> tuple[str, ...]:
    """A job file's path, which may be one string or a list, as a tuple.

    Raises:
        InputError: no path at all.
    """
    paths = (value,) if isinstance(value, str) else tuple(value)
    if not paths or not all(paths):
        raise InputError("path is empty", hint="name at least one file")
    return paths


def check_sources(paths: Sequence[str]) -> None:
    """Fails early on sources that cannot be read, before any work is done.

    Raises:
        InputError: a missing or unreadable file, or a format without a reader.
    """
    for name in paths:
        if name.startswith(HUB_PREFIX):
            hub_stem(name)
            continue
        path = Path(name)
        _check_format(path)
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise unreadable(path, error) from error


def source_stem(name: str) -> str:
    """What documents of this source are named after when they have no id of their own."""
    return hub_stem(name) if name.startswith(HUB_PREFIX) else stem_of(Path(name))


def read_documents(paths: Sequence[str]) -> Iterator[Document]:
    """Yields the documents of all sources, in order, in constant memory except for `.txt`.

    Args:
        paths: `.txt`, `.jsonl`, `.tsv` (DPR: id, text, title), each also `.gz`, `.zst` or `.xz`;
            `.parquet`; or `hf:name/config:split`.

    Raises:
        InputError: naming file and line: missing, unreadable, cut off, not UTF-8, bad JSON,
            missing column, lone surrogate.
        MissingDependencyError: an `hf:` source without the `datasets` package.
    """
    for name in paths:
        yield from _read_source(name)


def _read_source(name: str) -> Iterator[Document]:
    stem = source_stem(name)
    if name.startswith(HUB_PREFIX):
        records = read_hub_records(name)
    else:
        path = Path(name)
        suffix = _check_format(path)
        if suffix == ".txt":
            yield Document(stem, "", read_text(path))
            return
        records = _RECORD_READERS[suffix](path)
    for number, (identifier, title, text) in enumerate(records):
        yield Document(f"{stem}-{number}" if identifier is None else identifier, title, text)


def _check_format(path: Path) -> str:
    suffix, compression = split_suffix(path)
    if suffix not in SUFFIXES or (suffix == ".parquet" and compression):
        raise InputError(
            f"{path} has no known format",
            hint=f"use one of {', '.join(SUFFIXES)} (text formats also with "
            f"{', '.join(COMPRESSIONS)}) or {HUB_PREFIX}name/config:split",
        )
    return suffix
