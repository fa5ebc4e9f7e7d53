"""Passage files and indexes: built where absent, opened, described, verified."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from ralm_engine.errors import InputError
from ralm_engine.jobs.progress import StageSink, of_stage
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.retrieval.factory import open_retriever
from ralm_engine.retrieval.protocol import Retriever
from ralm_engine.store.hashing import hash_value
from ralm_engine.text.passages import PassagesConfig, PassageStore, ensure_passages

_WHAT_AN_INDEX_IS = ("format", "format_version", "analyzer", "num_passages", "passages_hash")
"""Header entries that decide what a search returns; two builds that share them are one index."""


def passages_file(passages: PassagesConfig, retrieval: RetrievalConfig) -> Path:
    """Where a job keeps its passages: [passages] store, or beside the index."""
    if passages.store:
        return Path(passages.store)
    index = Path(retrieval.index)
    return index.with_name(index.name + "-passages.arrow")


def ensure_index(
    passages: PassagesConfig, retrieval: RetrievalConfig, *, progress: StageSink | None = None
) -> tuple[PassageStore, str]:
    """Opens passages and index, building what is absent.

    Args:
        passages: the job's [passages] section.
        retrieval: the job's [retrieval] section.
        progress: told during the builds.

    Returns:
        The passages, and a hash of what the index is.

    Raises:
        InputError: bad sources, or an index of other passages, named on both sides.
    """
    file = passages_file(passages, retrieval)
    file.parent.mkdir(parents=True, exist_ok=True)
    store = ensure_passages(passages, file, progress=of_stage(progress, "cutting passages"))
    open_retriever(retrieval, store, progress=of_stage(progress, "indexing"))
    header = read_header(Path(retrieval.index))
    return store, hash_value({name: header[name] for name in _WHAT_AN_INDEX_IS})


def read_header(directory: Path) -> dict[str, Any]:
    """What an index's header says.

    Raises:
        InputError: no index there, or a damaged header.
    """
    file = directory / "header.json"
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{directory}: no index there", hint="build one with ralm-engine index build"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not an index header: {error}") from error
    if not isinstance(header, dict) or not header.keys() >= set(_WHAT_AN_INDEX_IS):
        raise InputError(f"{file}: not an index header", hint="build the index again")
    return header


def open_index(directory: Path, *, k1: float, b: float, num_threads: int) -> Retriever:
    """Opens an index of any engine by what its header says.

    Raises:
        InputError: no index there, a damaged one, or one of an unknown format.
    """
    index: Retriever = _engine_of(directory).open(directory, k1=k1, b=b, num_threads=num_threads)
    return index


def verify_index(directory: Path) -> list[str]:
    """Checks every file of an index; returns what is wrong, one line each."""
    try:
        index = _engine_of(directory).open(directory, k1=0.9, b=0.4, num_threads=1)
        if hasattr(index, "verify"):
            index.verify()
    except InputError as error:
        return [str(error)]
    return []


def _engine_of(directory: Path) -> Any:
    """The class that reads an index directory."""
    kind = read_header(directory)["format"]
    for module, name in (("native", "NativeIndex"), ("lucene", "LuceneIndex")):
        engine = importlib.import_module(f"ralm_engine.retrieval.{module}")
        if kind == engine.FORMAT:
            return getattr(engine, name)
    raise InputError(f'{directory}: its format "{kind}" is not known', hint="build the index again")
