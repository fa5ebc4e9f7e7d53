"""Native strided BM25 (csrc/bindings.cpp). Use it through ralm_engine.retrieval.native."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

FORMAT_VERSION: int
ANALYZER: str
MAX_QUERY_TERMS: int

def analyze(text: str) -> list[str]:
    """Index terms of `text`, in order, with repeats."""

def encode_length(length: int) -> int:
    """One-byte form of a passage length in terms."""

def decode_length(norm: int) -> int:
    """Length that a one-byte form stands for."""

class Builder:
    """Inverts passages in row order; spills to `work_directory`."""

    def __init__(self, work_directory: Path, *, num_threads: int, memory_bytes: int) -> None: ...
    def add(self, texts: list[str]) -> None: ...
    @property
    def num_done(self) -> int: ...
    def finish(self, path: Path) -> dict[str, int]: ...

class Index:
    """A mapped index file under given BM25 parameters."""

    def __init__(self, path: Path, *, k1: float, b: float) -> None: ...
    @property
    def num_passages(self) -> int: ...
    @property
    def norms(self) -> npt.NDArray[np.uint8]: ...
    def stats(self) -> dict[str, int]: ...
    def postings(self, term: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def verify(self) -> None: ...
    def search(
        self,
        queries: list[str],
        k: int,
        *,
        excluded: npt.NDArray[np.uint8] | None,
        num_threads: int,
        exhaustive: bool = False,
    ) -> tuple[
        npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int8]
    ]: ...
