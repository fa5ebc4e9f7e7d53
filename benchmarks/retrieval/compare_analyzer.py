"""Compares the native analyzer with Lucene's, term list by term list.

    python benchmarks/retrieval/compare_analyzer.py [passages.jsonl.gz ...]

Without files: all assigned planes of Unicode, every code point in eleven contexts. With files: the
terms of every passage. Needs the extra `lucene`.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ralm_engine import _native
from ralm_engine.retrieval.java import find_anserini, find_java_home

# Alone, between letters, digits, Hebrew, Katakana, underscores, doubled, behind Hiragana, an emoji
# and Thai, and before a presentation selector: every rule that looks at neighbours.
CONTEXTS = (
    "{}", "a{}b", "1{}1", "{}{}", "\u3042{}", "\u05d0{}\u05d0", "_{}_", "\u261d{}x", "{}\ufe0f",
    "\u30a2{}\u30a2", "\u0e01{}",
)  # fmt: skip
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]


class LuceneAnalyzer:
    """Anserini's English analyzer in a JVM inside this process."""

    def __init__(self) -> None:
        os.environ["JAVA_HOME"] = str(find_java_home())
        import jnius_config

        jnius_config.add_classpath(str(find_anserini()))
        from jnius import autoclass

        self._analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer")
        self._analyzer = self._analyzer.newDefaultInstance()
        self._utils: Any = autoclass("io.anserini.analysis.AnalyzerUtils")

    def __call__(self, text: str) -> list[str]:
        return list(self._utils.analyze(self._analyzer, text).toArray())


def code_point_texts() -> Iterator[str]:
    for code in CODE_POINTS:
        yield "\n zq ".join(c.replace("{}", chr(code)) for c in CONTEXTS)


def passage_texts(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                passage = json.loads(line)
                yield f"{passage['title']}\n{passage['text']}"


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]]
    lucene = LuceneAnalyzer()
    started = time.perf_counter()
    num_texts = num_terms = num_different = 0
    for text in passage_texts(paths) if paths else code_point_texts():
        expected = lucene(text)
        num_texts += 1
        num_terms += len(expected)
        if _native.analyze(text) != expected:
            num_different += 1
            if num_different <= 10:
                print(f"different: {text[:80]!r}")
    seconds = time.perf_counter() - started
    print(f"{num_texts} texts, {num_terms} terms, {num_different} different ({seconds:.0f} s)")
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
