"""The process that holds the JVM. Run as a script; it imports nothing of the engine.

It reads requests from its standard input and writes one reply each to its standard output: eight
bytes of length (little endian), then that much JSON in ASCII. What Java prints goes to standard
error. It ends when its input ends or when its parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, BinaryIO

FIELD = "contents"
# Lucene's default limit of clauses; the first terms in query order are kept, as the native engine
# does.
MAX_QUERY_TERMS = 1024
OK, NO_QUERY_TERMS, TRUNCATED_QUERY = 0, 1, 2
_PARENT_POLL_SECONDS = 1.0


def main() -> None:
    """Serves requests until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    start = _read(requests)
    if start is None:
        return
    lucene = Lucene(start["jar"], start["heap_mb"])
    _write(replies, {"java": lucene.java_version})
    operations: dict[str, Callable[..., dict[str, Any]]] = {
        "create": lucene.create,
        "add": lucene.add,
        "commit": lucene.commit,
        "open": lucene.open,
        "search": lucene.search,
    }
    while (request := _read(requests)) is not None:
        operation = operations[request.pop("op")]
        try:
            reply = operation(**request)
        except lucene.java_exception as error:
            reply = {"error": str(error).split("\n", 1)[0]}
        _write(replies, reply)


class Lucene:
    """One JVM with at most one index being written and one being searched."""

    def __init__(self, jar: str, heap_mb: int) -> None:
        # The jar and the options must be set before the JVM starts, and pyserini be imported
        # after: at import it asks for a module that a trimmed JVM lacks. -Xrs leaves signals alone,
        # and a crash must not leave its report in the user's directory.
        import jnius_config

        jnius_config.add_classpath(jar)
        jnius_config.add_options(f"-Xmx{heap_mb}m", "-Xrs", "-XX:ErrorFile=/dev/null")
        import jnius

        self.java_version = str(jnius.autoclass("java.lang.System").getProperty("java.version"))
        self.java_exception = jnius.JavaException
        from pyserini.pyclass import JString, autoclass, cast

        self._class, self._cast, self._string = autoclass, cast, JString
        self._writer: Any = None
        self._simple: Any = None
        self._searcher: Any = None

    def create(self, path: str, buffer_mb: int) -> dict[str, Any]:
        """Starts an index."""
        from pyserini.index.lucene import LuceneIndexer

        arguments = ["-index", path, "-memoryBuffer", str(buffer_mb)]
        self._writer = LuceneIndexer(args=arguments, threads=1)
        # Merging only neighbours keeps Lucene's document numbers equal to passage rows, so ties
        # fall to the lower row and no number has to be looked up.
        merge_policy = self._class("org.apache.lucene.index.LogDocMergePolicy")()
        self._writer.object.writer.getConfig().setMergePolicy(merge_policy)
        return {}

    def add(self, first: int, contents: list[str]) -> dict[str, Any]:
        """Adds the passages of rows first, first + 1, ..."""
        documents = [
            # The indexer drops what Java's trim leaves empty; a dot has no terms either.
            json.dumps({"id": str(first + i), "contents": text if _has_text(text) else "."})
            for i, text in enumerate(contents)
        ]
        self._writer.add_batch_raw(documents)
        return {}

    def commit(self) -> dict[str, Any]:
        """Merges into one segment and closes the index."""
        optimize = True
        self._writer.object.close(optimize)
        self._writer = None
        return {}

    def open(self, path: str, k1: float, b: float) -> dict[str, Any]:
        """Opens an index for searching; replies with its size and whether rows are numbers."""
        self._simple = self._class("io.anserini.search.SimpleSearcher")(path)
        self._searcher = self._class("org.apache.lucene.search.IndexSearcher")(self._simple.reader)
        similarity = self._class("org.apache.lucene.search.similarities.BM25Similarity")
        self._searcher.setSimilarity(similarity(k1, b))
        size = int(self._simple.get_total_num_docs())
        stored = self._searcher.storedFields()
        checked = {0, size // 3, size // 2, size - 1} if size else set()
        in_order = all(stored.document(row).get("id") == str(row) for row in checked)
        return {"num_documents": size, "in_order": in_order}

    def search(self, queries: list[str], k: int) -> dict[str, Any]:
        """Hits of every query: rows, raw float scores, status."""
        found = [self._search_one(query, k) for query in queries]
        rows, scores, status = zip(*found, strict=True) if found else ((), (), ())
        return {"rows": rows, "scores": scores, "status": status}

    def _search_one(self, query: str, k: int) -> tuple[list[int], list[float], int]:
        parsed, status = self._parse(query)
        if status == NO_QUERY_TERMS:
            return [], [], status
        hits = self._searcher.search(parsed, k).scoreDocs
        return [int(hit.doc) for hit in hits], [float(hit.score) for hit in hits], status

    def _parse(self, query: str) -> tuple[Any, int]:
        text = self._java(query)
        try:
            parsed = self._simple.generator.buildQuery(FIELD, self._simple.analyzer, text)
        except self.java_exception as error:
            if "TooManyClauses" not in str(error.classname):
                raise
            return self._parse_capped(text), TRUNCATED_QUERY
        size = self._cast("org.apache.lucene.search.BooleanQuery", parsed).clauses().size()
        return parsed, OK if size else NO_QUERY_TERMS

    def _parse_capped(self, text: Any) -> Any:
        analyse = self._class("io.anserini.analysis.AnalyzerUtils").analyze
        counts = Counter(analyse(self._simple.analyzer, text).toArray())
        clauses = self._class("org.apache.lucene.search.BooleanQuery$Builder")()
        should = self._class("org.apache.lucene.search.BooleanClause$Occur").SHOULD
        term = self._class("org.apache.lucene.index.Term")
        term_query = self._class("org.apache.lucene.search.TermQuery")
        boost = self._class("org.apache.lucene.search.BoostQuery")
        for name in list(counts)[:MAX_QUERY_TERMS]:
            clause = term_query(term(FIELD, self._java(name)))
            clauses.add(boost(clause, float(counts[name])), should)
        return clauses.build()

    def _java(self, text: str) -> Any:
        # pyjnius hands a str over as a C string: it ends at a NUL and garbles what lies beyond the
        # basic plane. Bytes arrive whole.
        return self._string(text.encode("utf-8"), "UTF-8")


def _has_text(text: str) -> bool:
    return any(character > " " for character in text)


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    if len(body) < size:
        return None
    request: dict[str, Any] = json.loads(body)
    return request


def _write(stream: BinaryIO, reply: dict[str, Any]) -> None:
    body = json.dumps(reply).encode("ascii")
    stream.write(len(body).to_bytes(8, "little") + body)
    stream.flush()


if __name__ == "__main__":
    main()
