"""One class an engine: build once into a folder, then search batches."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from retrieval.corpus import Passages

from ralm_engine import _native
from ralm_engine.retrieval.java import find_anserini, find_java_home
from ralm_engine.retrieval.native import NativeIndex

K1, B = 0.9, 0.4


class Engine(Protocol):
    """What the benchmark measures."""

    name: str
    max_threads: int
    warm_up: int  # queries before the clock starts

    def build(self, passages: Passages, folder: Path, num_threads: int) -> None: ...
    def open(self, folder: Path) -> None: ...
    def search(self, queries: list[str], k: int, num_threads: int) -> list[list[tuple[int, float]]]:
        """(row, score) of the hits of every query."""
        ...


class Native:
    name = "native"
    max_threads = 2
    warm_up = 500

    def build(self, passages: Passages, folder: Path, num_threads: int) -> None:
        NativeIndex.build(passages, folder, num_threads=num_threads)

    def open(self, folder: Path) -> None:
        self._folder = folder
        self._index = {n: NativeIndex.open(folder, k1=K1, b=B, num_threads=n) for n in (1, 2)}

    def search(self, queries: list[str], k: int, num_threads: int) -> list[list[tuple[int, float]]]:
        found = self._index[num_threads].search(queries, k)
        return [
            list(zip(rows[:count], scores[:count], strict=True))
            for rows, scores, count in zip(
                found.passage_QK.tolist(), found.score_QK.tolist(), found.count_Q, strict=True
            )
        ]


class Lucene:
    """The Java methods behind pyserini's LuceneSearcher.batch_search and its index command."""

    name = "lucene"
    max_threads = 2
    warm_up = 2000  # the JVM compiles what runs often

    def __init__(self) -> None:
        os.environ["JAVA_HOME"] = str(find_java_home())
        import jnius_config

        if not jnius_config.vm_running:
            jnius_config.add_classpath(str(find_anserini()))
            jnius_config.add_options("-Xmx6g")
        from jnius import autoclass

        self._class: Any = autoclass

    def build(self, passages: Passages, folder: Path, num_threads: int) -> None:
        texts = folder.with_name(folder.name + "-texts")
        shutil.rmtree(texts, ignore_errors=True)
        texts.mkdir(parents=True)
        with (texts / "passages.jsonl").open("w", encoding="utf-8") as file:
            for row, text in enumerate(passages.texts):
                file.write(json.dumps({"id": str(row), "contents": text}) + "\n")
        options = {
            "collection": "JsonCollection",
            "input": str(texts),
            "index": str(folder),
            "generator": "DefaultLuceneDocumentGenerator",
            "threads": str(num_threads),
        }
        arguments = [part for name, value in options.items() for part in (f"-{name}", value)]
        self._class("io.anserini.index.IndexCollection").main([*arguments, "-optimize"])
        shutil.rmtree(texts)

    def open(self, folder: Path) -> None:
        self._searcher = self._class("io.anserini.search.SimpleSearcher")(str(folder))
        self._searcher.set_bm25(K1, B)

    def search(self, queries: list[str], k: int, num_threads: int) -> list[list[tuple[int, float]]]:
        texts, names = self._class("java.util.ArrayList")(), self._class("java.util.ArrayList")()
        for i, query in enumerate(queries):
            texts.add(query)
            names.add(str(i))
        found = self._searcher.batch_search(texts, names, k, num_threads)
        return [
            [(int(hit.docid), float(hit.score)) for hit in found.get(str(i)) or ()]
            for i in range(len(queries))
        ]


class Bm25s:
    """bm25s over our terms: it has no analyzer of Lucene's kind."""

    name = "bm25s"
    max_threads = 2
    warm_up = 50  # its first query compiles

    def build(self, passages: Passages, folder: Path, num_threads: int) -> None:
        import bm25s

        del num_threads  # it has one
        index = bm25s.BM25(k1=K1, b=B, method="lucene")
        # One string a term instead of one an occurrence: 3 GB less for 859,350 passages.
        shared: dict[str, str] = {}
        terms = [
            [shared.setdefault(term, term) for term in _native.analyze(text)]
            for text in passages.texts
        ]
        index.index(terms, show_progress=False)
        index.save(folder)

    def open(self, folder: Path) -> None:
        import bm25s

        self._index = bm25s.BM25.load(folder)

    def search(self, queries: list[str], k: int, num_threads: int) -> list[list[tuple[int, float]]]:
        terms = [_native.analyze(query) for query in queries]
        rows, scores = self._index.retrieve(terms, k=k, n_threads=num_threads, show_progress=False)
        return [
            list(zip(r, s, strict=True))
            for r, s in zip(rows.tolist(), scores.tolist(), strict=True)
        ]


class Tantivy:
    """tantivy with its English analyzer; close to ours in terms, not equal."""

    name = "tantivy"
    max_threads = 1
    warm_up = 200

    def build(self, passages: Passages, folder: Path, num_threads: int) -> None:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_text_field("text", stored=False, tokenizer_name="en_stem", index_option="freq")
        schema.add_integer_field("row", stored=True, fast=True)
        folder.mkdir(parents=True)
        index = tantivy.Index(schema.build(), path=str(folder))
        writer = index.writer(1 << 29, num_threads)
        for row, text in enumerate(passages.texts):
            writer.add_document(tantivy.Document(text=text, row=row))
        writer.commit()
        writer.wait_merging_threads()

    def open(self, folder: Path) -> None:
        import tantivy

        self._index = tantivy.Index.open(str(folder))
        self._searcher = self._index.searcher()

    def search(self, queries: list[str], k: int, num_threads: int) -> list[list[tuple[int, float]]]:
        del num_threads  # its Python search has one
        results = []
        for query in queries:
            text = " ".join(_native.analyze(query))
            plain = "".join(c if c.isalnum() else " " for c in text)
            with contextlib.suppress(ValueError):
                parsed = self._index.parse_query(plain, ["text"])
                hits = self._searcher.search(parsed, k).hits
                results.append([(address.doc, score) for score, address in hits])
        return results


ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (Native, Lucene, Bm25s, Tantivy)
}


def num_different(
    ours: list[list[tuple[int, float]]], theirs: list[list[tuple[int, float]]]
) -> tuple[int, int]:
    """(hits swapped between equal scores, hits that differ otherwise).

    Anserini reports scores to four decimals: two hits within 1e-4 count as equal.
    """
    swapped = different = 0
    for mine, reference in zip(ours, theirs, strict=True):
        for rank, (row, score) in enumerate(reference):
            if rank < len(mine) and mine[rank][0] == row:
                continue
            close = rank < len(mine) and np.isclose(mine[rank][1], score, rtol=1e-5, atol=1e-4)
            swapped += bool(close)
            different += not close
    return swapped, different
