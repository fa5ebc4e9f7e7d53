"""Lucene's own BM25 through pyserini: the reference that the native engine is measured against.

An index is a directory of Lucene's files in `lucene/` and a `header.json`, which says for which
passages it was built and names every file with its size.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ralm_engine.errors import InputError, RunError
from ralm_engine.retrieval.java import find_anserini
from ralm_engine.retrieval.lucene_process import LuceneProcess
from ralm_engine.retrieval.protocol import NO_PASSAGE, Candidates, PassageMask
from ralm_engine.store.atomic import temporary_name
from ralm_engine.text.lines import is_unicode
from ralm_engine.text.passages import PassageStore, Progress

FORMAT = "lucene-bm25"
FORMAT_VERSION = 1
ANALYZER = "anserini-default-english"
HEADER_FILE = "header.json"
_FILES = "lucene"

# 2000 passages are 1.5 MB of JSON: few round trips, and progress every fifth of a second.
_ADD_BATCH = 2000
_BUFFER_MB = 256
DEFAULT_HEAP_MB = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class LuceneHeader:
    """header.json of a Lucene index.

    Attributes:
        format: which engine reads it.
        format_version: version of this layout.
        analyzer: name of the rules that turn text into terms.
        passages_hash: content hash of the passages.
        num_passages: N.
        anserini: name of the archive that wrote it.
        files: size in bytes of each of Lucene's files.
    """

    format: str
    format_version: int
    analyzer: str
    passages_hash: str
    num_passages: int
    anserini: str
    files: dict[str, int]

    @classmethod
    def read(cls, index: Path) -> LuceneHeader:
        """Reads and checks the header, and that all of Lucene's files are there and whole.

        Raises:
            InputError: no Lucene index, a damaged or cut-off one, or one of another version.
        """
        path = index / HEADER_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{index} holds no index", hint="run `ralm-engine index build`"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is damaged: {error}", hint="build the index again") from None
        if not isinstance(fields, dict):
            raise InputError(f"{path} is damaged: not an object", hint="build the index again")
        ours = {"format": FORMAT, "format_version": FORMAT_VERSION, "analyzer": ANALYZER}
        for name, value in ours.items():
            if fields.get(name) != value:
                raise InputError(
                    f"{path}: {name} is {fields.get(name)!r}, this program reads {value!r}",
                    hint="build the index again or use a program that matches it",
                )
        if set(fields) != set(cls.__slots__):
            odd = ", ".join(sorted(set(fields) ^ set(cls.__slots__)))
            raise InputError(f"{path} is damaged: fields {odd}", hint="build the index again")
        header = cls(**fields)
        header.check_files(index)
        return header

    def check_files(self, index: Path) -> None:
        """Compares the files on disk with the recorded sizes.

        Raises:
            InputError: one is missing or has another size; names both sizes.
        """
        found = _file_sizes(index / _FILES)
        for name, size in self.files.items():
            if found.get(name) != size:
                raise InputError(
                    f"{index / _FILES / name} is {found.get(name, 'missing')} where "
                    f"{HEADER_FILE} says {size} bytes",
                    hint="build the index again",
                )


_Hits: TypeAlias = tuple[list[int], list[float], int]


class LuceneIndex:
    """A Lucene index with its JVMs in processes of their own, started at the first search.

    Threads may share it: requests queue. Forked children get a JVM of their own. A JVM that dies
    is replaced and its request repeated once.
    """

    def __init__(self, path: Path, header: LuceneHeader, processes: list[LuceneProcess]) -> None:
        self.path = path
        self.header = header
        self._processes = processes

    @classmethod
    def build(
        cls,
        passages: PassageStore,
        out: Path,
        *,
        heap_mb: int = DEFAULT_HEAP_MB,
        progress: Progress | None = None,
    ) -> LuceneHeader:
        """Builds an index directory, which appears whole or not at all.

        Args:
            passages: N passages; row numbers become document numbers.
            out: directory to create; may exist when empty.
            heap_mb: limit of the JVM's heap, MB.
            progress: called with (passages indexed, N).

        Raises:
            InputError: out is not empty.
            MissingDependencyError: no JVM or no pyserini.
            RunError: Java failed, or out cannot be written.
        """
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(
                f"{out} is in the way of a new index", hint="delete it or name another"
            )
        aside = out.parent / temporary_name(out.name)
        try:
            (aside / _FILES).mkdir(parents=True)
            _write_index(passages, aside / _FILES, heap_mb, progress)
            header = LuceneHeader(
                format=FORMAT,
                format_version=FORMAT_VERSION,
                analyzer=ANALYZER,
                passages_hash=passages.content_hash,
                num_passages=passages.num_passages,
                anserini=find_anserini().name,
                files=_file_sizes(aside / _FILES),
            )
            text = json.dumps(asdict(header), indent=2, sort_keys=True) + "\n"
            (aside / HEADER_FILE).write_text(text, encoding="utf-8")
            # Renaming a directory onto an empty one replaces it in one step.
            aside.replace(out)
        except OSError as error:
            raise RunError(f"cannot write the index {out}: {error.strerror or error}") from error
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
        heap_mb: int = DEFAULT_HEAP_MB,
    ) -> LuceneIndex:
        """Checks an index; the JVM starts at the first search.

        Args:
            path: the index directory.
            k1: BM25's saturation of repeated terms.
            b: BM25's normalisation by length.
            num_threads: queries searched at a time, each by a JVM of its own: pyjnius crashed when
                two threads of one process called into a JVM.
            heap_mb: limit of each JVM's heap, MB.

        Raises:
            InputError: no Lucene index, a damaged one, or one of another version.
            MissingDependencyError: no JVM or no pyserini.
        """
        header = LuceneHeader.read(path)
        find_anserini()
        request = {"op": "open", "path": str(path / _FILES), "k1": k1, "b": b}

        def prepare(process: LuceneProcess) -> None:
            opened = process.ask(request)
            if opened["num_documents"] != header.num_passages or not opened["in_order"]:
                raise InputError(
                    f"{path} holds {opened['num_documents']} documents that do not match the "
                    f"{header.num_passages} passages in {HEADER_FILE}",
                    hint="build the index again",
                )

        processes = [LuceneProcess(heap_mb=heap_mb, prepare=prepare) for _ in range(num_threads)]
        return cls(path, header, processes)

    @property
    def num_passages(self) -> int:
        """N, the passages the index was built from."""
        return self.header.num_passages

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the JVMs that were started."""
        return [process.pid for process in self._processes if process.pid is not None]

    def search(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None = None
    ) -> Candidates:
        """Finds the k best passages of every query; see Retriever.

        Excluded passages are left out by asking for more hits, until k others are found or the
        query has no more.

        Raises:
            InputError: k below 1, a mask of another passage file, or a query that is not Unicode.
            RunError: Java failed twice.
        """
        self._check(queries, k, exclude)
        candidates = _empty_candidates(len(queries), k)
        excluded = exclude.rows if exclude is not None else np.zeros(0, dtype=np.int64)
        open_queries = list(range(len(queries)))
        wanted = min(k + (len(excluded) > 0) * k, self.num_passages)
        while open_queries and wanted:
            hits = self._hits([queries[q] for q in open_queries], wanted)
            unfinished = []
            for q, (found, found_scores, status) in zip(open_queries, hits, strict=True):
                candidates.status_Q[q] = status
                rows = np.array(found, dtype=np.int64)
                scores = np.array(found_scores, dtype=np.float32)
                kept = ~np.isin(rows, excluded)
                if kept.sum() < k and len(rows) == wanted < self.num_passages:
                    unfinished.append(q)
                else:
                    _fill(candidates, q, rows[kept][:k], scores[kept][:k])
            open_queries = unfinished
            wanted = min(wanted * 4, self.num_passages)
        return candidates

    def close(self) -> None:
        """Ends the JVMs; a later search starts others."""
        for process in self._processes:
            process.close()

    def _hits(self, queries: list[str], k: int) -> Iterator[_Hits]:
        """Hits of each query, the queries shared out among the JVMs in runs of neighbours."""
        size = -(-len(queries) // len(self._processes))
        parts = [queries[begin : begin + size] for begin in range(0, len(queries), size)]

        def ask(process: LuceneProcess, part: list[str]) -> dict[str, Any]:
            return process.ask_again({"op": "search", "queries": part, "k": k})

        if len(parts) == 1:
            replies = [ask(self._processes[0], parts[0])]
        else:
            with ThreadPoolExecutor(len(parts)) as threads:
                replies = list(threads.map(ask, self._processes, parts))
        for reply in replies:
            yield from zip(reply["rows"], reply["scores"], reply["status"], strict=True)

    def _check(self, queries: Sequence[str], k: int, exclude: PassageMask | None) -> None:
        if k < 1:
            raise InputError(f"k = {k} must be at least 1")
        if exclude is not None and exclude.num_passages != self.num_passages:
            raise InputError(
                f"the mask is for {exclude.num_passages} passages, the index holds "
                f"{self.num_passages}"
            )
        for number, query in enumerate(queries):
            if not is_unicode(query):
                raise InputError(f"query {number} holds a lone surrogate, which is not Unicode")


def _empty_candidates(num_queries: int, k: int) -> Candidates:
    return Candidates(
        passage_QK=np.full((num_queries, k), NO_PASSAGE, dtype=np.int64),
        score_QK=np.zeros((num_queries, k), dtype=np.float32),
        count_Q=np.zeros(num_queries, dtype=np.int32),
        status_Q=np.zeros(num_queries, dtype=np.int8),
    )


def _fill(
    candidates: Candidates,
    query: int,
    rows: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
) -> None:
    count = len(rows)
    candidates.passage_QK[query, :count] = rows
    candidates.score_QK[query, :count] = scores
    candidates.count_Q[query] = count


def _write_index(
    passages: PassageStore, folder: Path, heap_mb: int, progress: Progress | None
) -> None:
    total = passages.num_passages
    process = LuceneProcess(heap_mb=heap_mb)
    try:
        process.ask(
            {"op": "create", "path": str(folder), "buffer_mb": min(_BUFFER_MB, heap_mb // 4)}
        )
        for begin in range(0, total, _ADD_BATCH):
            end = min(begin + _ADD_BATCH, total)
            request: dict[str, Any] = {"op": "add", "first": begin}
            process.ask(request | {"contents": passages.contents_range(begin, end)})
            if progress is not None:
                progress(end, total)
        process.ask({"op": "commit"})
    finally:
        process.close()
    # Lucene leaves its lock file behind; a copied index must not look locked.
    (folder / "write.lock").unlink(missing_ok=True)


def _file_sizes(folder: Path) -> dict[str, int]:
    if not folder.is_dir():
        return {}
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
