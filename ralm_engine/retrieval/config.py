"""The [retrieval] section of a job file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ralm_engine.errors import InputError

Engine = Literal["native", "lucene"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig:
    """What is retrieved, how often, and by which engine.

    Attributes:
        engine: `native` (own index, no JVM) or `lucene` (pyserini, the reference).
        index: index directory, built if absent.
        stride: target tokens between two retrievals.
        query_length: last prefix tokens whose text is the query.
        k: candidates per stride.
        k1, b: BM25 parameters.
        threads: search threads per retrieval worker.
    """

    engine: Engine = "native"
    index: str = "index/"
    stride: int = 4
    query_length: int = 32
    k: int = 16
    k1: float = 0.9
    b: float = 0.4
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("stride", "query_length", "k", "threads"):
            if getattr(self, name) < 1:
                raise InputError(f"[retrieval] {name} = {getattr(self, name)} must be at least 1")
        if self.k1 < 0:
            raise InputError(f"[retrieval] k1 = {self.k1} must not be negative")
        if not 0 <= self.b <= 1:
            raise InputError(f"[retrieval] b = {self.b} must lie between 0 and 1")
