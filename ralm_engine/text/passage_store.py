"""The passage file: texts kept once, memory-mapped by every process on a node."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.text.arrow_files import FORMAT_KEY, VERSION_KEY, MappedBatches

FORMAT = "ralm_engine.passages"
FORMAT_VERSION = 1
HASH_KEY = b"ralm_engine.content_hash"
COUNTS_KEY = b"ralm_engine.counts"
BUILD_KEY = b"ralm_engine.build"
NOT_DUPLICATE = -1

TEXT_FIELDS = (
    pa.field("id", pa.string(), nullable=False),
    pa.field("title", pa.string(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
    pa.field("source", pa.string(), nullable=False),
)
SCHEMA = pa.schema([*TEXT_FIELDS, pa.field("duplicate_of", pa.int64(), nullable=False)])

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total); total is 0 while it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageCounts:
    """What happened while the passages were built.

    Attributes:
        documents: source documents read.
        empty: documents without a word, dropped.
        duplicates: passages whose normalised text an earlier one has; kept and flagged.
    """

    documents: int
    empty: int
    duplicates: int


class PassageStore:
    """N passages in a memory-mapped Arrow file; row numbers name them everywhere else."""

    def __init__(self, mapped: MappedBatches) -> None:
        self._mapped = mapped
        self._counts = PassageCounts(**json.loads(mapped.metadata[COUNTS_KEY]))

    @classmethod
    def open(cls, path: Path) -> PassageStore:
        """Maps a passage file; reads no text.

        Raises:
            InputError: missing, unfinished, cut off, no passage file, or of a newer version.
        """
        mapped = MappedBatches(
            Path(path), what="passage file", format_name=FORMAT, format_version=FORMAT_VERSION
        )
        return cls(mapped)

    @property
    def path(self) -> Path:
        """The file."""
        return self._mapped.path

    @property
    def num_passages(self) -> int:
        """N, the number of passages."""
        return self._mapped.num_rows

    @property
    def content_hash(self) -> str:
        """Hex sha256 over ids, titles and texts in row order."""
        return self._mapped.metadata[HASH_KEY].decode()

    @property
    def counts(self) -> PassageCounts:
        """What was read, dropped and flagged while building."""
        return self._counts

    @property
    def build(self) -> Mapping[str, object]:
        """What the builder recorded about its sources."""
        recorded: dict[str, object] = json.loads(self._mapped.metadata[BUILD_KEY])
        return recorded

    @property
    def ids(self) -> pa.ChunkedArray:
        """Passage ids, memory-mapped strings [N]."""
        return self._mapped.column("id")

    @property
    def titles(self) -> pa.ChunkedArray:
        """Titles, memory-mapped strings [N]; empty where there is none."""
        return self._mapped.column("title")

    @property
    def sources(self) -> pa.ChunkedArray:
        """Ids of the documents that the passages were cut from, memory-mapped strings [N]."""
        return self._mapped.column("source")

    @functools.cached_property
    def duplicate_of(self) -> npt.NDArray[np.int64]:
        """Lowest row with the same normalised text, NOT_DUPLICATE where it is the first. [N]."""
        return self._mapped.numpy("duplicate_of")

    def id(self, row: int) -> str:
        """Id of one passage."""
        return str(self._mapped.value("id", row))

    def title(self, row: int) -> str:
        """Title of one passage."""
        return str(self._mapped.value("title", row))

    def text(self, row: int) -> str:
        """Text of one passage without its title."""
        return str(self._mapped.value("text", row))

    def contents(self, row: int) -> str:
        """Title, newline, text; the text alone where there is no title.

        Raises:
            IndexError: no such row.
        """
        return _contents(self.title(row), self.text(row))

    def contents_range(self, begin: int, end: int) -> list[str]:
        """`contents` of rows begin..end, in order."""
        titles = self._mapped.values("title", begin, end)
        texts = self._mapped.values("text", begin, end)
        return [_contents(title, text) for title, text in zip(titles, texts, strict=True)]


def schema_with(content_hash: str, counts: PassageCounts, build: Mapping[str, object]) -> pa.Schema:
    """The file's schema with everything that its readers rely on."""
    return SCHEMA.with_metadata(
        {
            FORMAT_KEY: FORMAT,
            VERSION_KEY: str(FORMAT_VERSION),
            HASH_KEY: content_hash,
            COUNTS_KEY: json.dumps(
                {
                    "documents": counts.documents,
                    "empty": counts.empty,
                    "duplicates": counts.duplicates,
                }
            ),
            BUILD_KEY: json.dumps(dict(build), sort_keys=True),
        }
    )


def _contents(title: str, text: str) -> str:
    return f"{title}\n{text}" if title else text
