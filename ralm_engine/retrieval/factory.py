"""Opens the retriever that a job names, building its index first where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ralm_engine.errors import InputError
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.retrieval.protocol import Retriever
from ralm_engine.text.passages import PassageStore, Progress

_HEADER_FILE = "header.json"


class _Header(Protocol):
    @property
    def passages_hash(self) -> str: ...

    @property
    def num_passages(self) -> int: ...


def open_retriever(
    cfg: RetrievalConfig, passages: PassageStore, *, progress: Progress | None = None
) -> Retriever:
    """Opens the index at cfg.index, which is built, whole or not at all, where it is absent.

    Args:
        cfg: engine, index directory, BM25 parameters, threads.
        passages: what the index must have been built from.
        progress: called with (passages indexed, N) while an index is built.

    Raises:
        InputError: the index was built from other passages, by another engine, analyzer or
            version, or is damaged; the message names both sides.
        MissingDependencyError: the engine needs something that is not installed.
        RunError: the index cannot be written.
    """
    index = Path(cfg.index)
    if not (index / _HEADER_FILE).exists():
        _make_room(index)
        _build(cfg, passages, index, progress)
    return _open_native(cfg, passages) if cfg.engine == "native" else _open_lucene(cfg, passages)


def _make_room(index: Path) -> None:
    if not index.exists():
        return
    try:
        index.rmdir()
    except OSError as error:
        raise InputError(
            f"[retrieval] index {index} is no index ({error.strerror})",
            hint="name a directory that holds an index, is empty, or does not exist",
        ) from error


def _build(
    cfg: RetrievalConfig, passages: PassageStore, index: Path, progress: Progress | None
) -> None:
    if cfg.engine == "native":
        from ralm_engine.retrieval.native import NativeIndex

        NativeIndex.build(passages, index, num_threads=cfg.threads, progress=progress)
    else:
        from ralm_engine.retrieval.lucene import LuceneIndex

        LuceneIndex.build(passages, index, progress=progress)


def _open_native(cfg: RetrievalConfig, passages: PassageStore) -> Retriever:
    from ralm_engine.retrieval.native import NativeHeader, NativeIndex

    index = Path(cfg.index)
    _check_passages(index, NativeHeader.read(index), passages)
    return NativeIndex.open(index, k1=cfg.k1, b=cfg.b, num_threads=cfg.threads)


def _open_lucene(cfg: RetrievalConfig, passages: PassageStore) -> Retriever:
    from ralm_engine.retrieval.lucene import LuceneHeader, LuceneIndex

    index = Path(cfg.index)
    _check_passages(index, LuceneHeader.read(index), passages)
    return LuceneIndex.open(index, k1=cfg.k1, b=cfg.b, num_threads=cfg.threads)


def _check_passages(index: Path, header: _Header, passages: PassageStore) -> None:
    ours = (passages.num_passages, passages.content_hash)
    theirs = (header.num_passages, header.passages_hash)
    if ours != theirs:
        raise InputError(
            f"index {index} was built from other passages: it has {theirs[0]} with hash "
            f"{theirs[1][:12]}, {passages.path} has {ours[0]} with hash {ours[1][:12]}",
            hint="delete the index to build it anew, or name the passages it was built from",
        )
