"""The default engine: BM25 with Lucene's ranking, in native code, without a JVM.

An index is a directory of two files: `index.bin` (postings, see docs/specs/native-index.md) and
`header.json`, which says for which passages it was built and by which rules.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ralm_engine import _native
from ralm_engine.errors import InputError, RunError
from ralm_engine.retrieval.protocol import Candidates, PassageMask

FORMAT = "native-bm25"
HEADER_FILE = "header.json"
POSTINGS_FILE = "index.bin"

# Passages per call into the builder: 4096 keep the Python strings under 4 MB and the calls rare.
_ADD_BATCH = 4096
_DEFAULT_MEMORY_BYTES = 1 << 30

Progress = Callable[[int, int], None]
"""Called with (passages analysed, passages in all)."""


class PassageTexts(Protocol):
    """What an index is built from; PassageStore is one."""

    @property
    def num_passages(self) -> int:
        """N."""
        ...

    @property
    def content_hash(self) -> str:
        """Identifies ids, titles and texts."""
        ...

    def contents_range(self, begin: int, end: int) -> list[str]:
        """Texts to index of rows begin..end-1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeHeader:
    """header.json of a native index.

    Attributes:
        format, format_version: which program can read it.
        analyzer: name of the rules that turn text into terms.
        passages_hash: content hash of the passages.
        num_passages, num_terms, num_postings, num_tokens: sizes.
        num_bytes, checksum: of index.bin; the checksum identifies the content.
    """

    format: str
    format_version: int
    analyzer: str
    passages_hash: str
    num_passages: int
    num_terms: int
    num_postings: int
    num_tokens: int
    num_bytes: int
    checksum: str

    @classmethod
    def read(cls, index: Path) -> NativeHeader:
        """Reads the header of an index directory.

        Raises:
            InputError: no native index there, a damaged header, or one of another version.
        """
        path = index / HEADER_FILE
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{index} holds no index", hint="run `ralm-engine index build`"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is damaged: {error}", hint="build the index again") from None
        if not isinstance(fields, dict):
            raise InputError(f"{path} is damaged: not an object", hint="build the index again")
        ours = {
            "format": FORMAT,
            "format_version": _native.FORMAT_VERSION,
            "analyzer": _native.ANALYZER,
        }
        for name, value in ours.items():
            if fields.get(name) != value:
                raise InputError(
                    f"{path}: {name} is {fields.get(name)!r}, this program reads {value!r}",
                    hint="build the index again or use a program that matches it",
                )
        if set(fields) != set(cls.__slots__):
            odd = ", ".join(sorted(set(fields) ^ set(cls.__slots__)))
            raise InputError(f"{path} is damaged: fields {odd}", hint="build the index again")
        return cls(**fields)


class NativeIndex:
    """A built index, mapped read-only: processes on one machine share its memory.

    Searching is safe from several threads and releases the GIL.
    """

    def __init__(
        self, path: Path, header: NativeHeader, index: _native.Index, *, num_threads: int
    ) -> None:
        self.path = path
        self.header = header
        self._index = index
        self._num_threads = num_threads

    @classmethod
    def build(
        cls,
        passages: PassageTexts,
        out: Path,
        *,
        num_threads: int = 1,
        memory_bytes: int = _DEFAULT_MEMORY_BYTES,
        progress: Progress | None = None,
    ) -> NativeHeader:
        """Builds an index directory, which appears whole or not at all.

        Args:
            passages: N passages; row numbers become passage numbers.
            out: directory to create; may exist when empty.
            num_threads: threads that analyse text.
            memory_bytes: rough bound on the builder's memory; the rest spills to disk beside `out`.
                The index is the same whatever threads and memory are.
            progress: told after every batch.

        Raises:
            InputError: `out` is not empty, or a passage that UTF-8 cannot hold, naming its row.
            RunError: the disk is full or fails.
        """
        out = Path(out)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(
                f"{out} is in the way of a new index", hint="delete it or name another"
            )
        if num_threads < 1:
            raise InputError(f"num_threads = {num_threads} must be at least 1")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
        except OSError as error:
            raise RunError(f"cannot write {out}: {error}") from None
        try:
            stats = _write_postings(passages, aside, num_threads, memory_bytes, progress)
            header = _write_header(passages, aside, stats)
            aside.chmod(0o755)
            aside.rename(out)
        except OSError as error:
            raise RunError(f"cannot write {out}: {error}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return header

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        num_threads: int = 1,
        passages_hash: str | None = None,
    ) -> NativeIndex:
        """Maps an index and checks all of it: versions, sizes and checksums.

        Args:
            path: index directory.
            k1: BM25 saturation, 0 to 1000; chosen now, not at build time.
            b: BM25 length normalisation, 0 to 1.
            num_threads: threads of a search.
            passages_hash: content hash of the passages in use; an index of others is refused.

        Raises:
            InputError: missing, damaged, of another version, or built from other passages.
        """
        if not 0 <= k1 <= 1000 or not 0 <= b <= 1:
            raise InputError(f"k1 = {k1} must lie in 0..1000 and b = {b} in 0..1")
        if num_threads < 1:
            raise InputError(f"num_threads = {num_threads} must be at least 1")
        path = Path(path)
        header = NativeHeader.read(path)
        if passages_hash is not None and passages_hash != header.passages_hash:
            raise InputError(
                f"{path} was built from passages {header.passages_hash[:12]}, "
                f"in use are {passages_hash[:12]}",
                hint="build the index again",
            )
        index = _native.Index(path / POSTINGS_FILE, k1=k1, b=b)
        checksum = _hex(index.stats()["checksum"])
        if (checksum, index.num_passages) != (header.checksum, header.num_passages):
            raise InputError(
                f"{path}: {HEADER_FILE} describes {header.num_passages} passages with checksum "
                f"{header.checksum}, {POSTINGS_FILE} holds {index.num_passages} with {checksum}",
                hint="build the index again",
            )
        return cls(path, header, index, num_threads=num_threads)

    @property
    def num_passages(self) -> int:
        """N, the passages the index was built from."""
        return self.header.num_passages

    def search(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None = None
    ) -> Candidates:
        """Finds the k best passages of every query; see Retriever.search.

        Queries in stream order are fastest, since neighbours share most of their terms; results
        never depend on the order. A query of more than 1024 distinct terms keeps the first 1024 and
        has status TRUNCATED_QUERY.
        """
        return self._search(queries, k, exclude=exclude, exhaustive=False)

    def search_exhaustively(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None = None
    ) -> Candidates:
        """As search, by scoring every posting: slow, and the oracle of the fast search."""
        return self._search(queries, k, exclude=exclude, exhaustive=True)

    def verify(self) -> None:
        """Decodes every posting list and compares it with the header.

        Raises:
            InputError: the index is damaged.
        """
        self._index.verify()

    def info(self) -> dict[str, int | str]:
        """The header's fields, for people."""
        return asdict(self.header)

    def _search(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None, exhaustive: bool
    ) -> Candidates:
        if k < 1:
            raise InputError(f"k = {k} must be at least 1")
        if exclude is not None and exclude.num_passages != self.num_passages:
            raise InputError(
                f"the mask is for {exclude.num_passages} passages, "
                f"the index holds {self.num_passages}"
            )
        passages, scores, counts, statuses = self._index.search(
            list(queries),
            k,
            excluded=None if exclude is None else exclude.bitmap(),
            num_threads=self._num_threads,
            exhaustive=exhaustive,
        )
        return Candidates(passage_QK=passages, score_QK=scores, count_Q=counts, status_Q=statuses)


def _write_postings(
    passages: PassageTexts,
    directory: Path,
    num_threads: int,
    memory_bytes: int,
    progress: Progress | None,
) -> dict[str, int]:
    builder = _native.Builder(directory, num_threads=num_threads, memory_bytes=memory_bytes)
    total = passages.num_passages
    for begin in range(0, total, _ADD_BATCH):
        builder.add(passages.contents_range(begin, min(begin + _ADD_BATCH, total)))
        if progress is not None:
            progress(builder.num_done, total)
    stats = builder.finish(directory / POSTINGS_FILE)
    if progress is not None:
        progress(total, total)
    return stats


def _write_header(passages: PassageTexts, directory: Path, stats: dict[str, int]) -> NativeHeader:
    built = _native.Index(directory / POSTINGS_FILE, k1=0.9, b=0.4)
    header = NativeHeader(
        format=FORMAT,
        format_version=_native.FORMAT_VERSION,
        analyzer=_native.ANALYZER,
        passages_hash=passages.content_hash,
        num_passages=stats["num_passages"],
        num_terms=stats["num_terms"],
        num_postings=stats["num_postings"],
        num_tokens=stats["num_tokens"],
        num_bytes=stats["num_bytes"],
        checksum=_hex(built.stats()["checksum"]),
    )
    path = directory / HEADER_FILE
    with path.open("w", encoding="utf-8") as file:
        json.dump(asdict(header), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    return header


def _hex(checksum: int) -> str:
    return f"{checksum:016x}"
