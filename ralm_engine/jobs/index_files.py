"""Index directories that exist: opened by the engine that wrote them, described, verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ralm_engine.errors import InputError
from ralm_engine.retrieval.protocol import Retriever

HEADER_FILE = "header.json"
_LUCENE = "lucene"


def read_header(path: Path) -> dict[str, Any]:
    """What an index says about itself.

    Raises:
        InputError: no index there, or a damaged header.
    """
    try:
        header = json.loads((path / HEADER_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{path} holds no index", hint="build one with `ralm-engine index build`"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path / HEADER_FILE} is damaged: {error}", hint="build the index again"
        ) from error
    if not isinstance(header, dict):
        raise InputError(f"{path / HEADER_FILE} is no object", hint="build the index again")
    return header


def open_index(path: Path, *, k1: float, b: float, num_threads: int) -> Retriever:
    """Opens an index with the engine that wrote it.

    Args:
        path: index directory.
        k1: BM25 saturation, chosen now and not when the index was built.
        b: BM25 length normalisation, from 0 to 1.
        num_threads: threads of a search.

    Raises:
        InputError: no index, a damaged one, or parameters out of range.
        MissingDependencyError: the engine that wrote it is not installed.
    """
    if _LUCENE in str(read_header(path).get("format")):
        from ralm_engine.retrieval.lucene import LuceneIndex

        return LuceneIndex.open(path, k1=k1, b=b, num_threads=num_threads)
    from ralm_engine.retrieval.native import NativeIndex

    return NativeIndex.open(path, k1=k1, b=b, num_threads=num_threads)


def verify_index(path: Path) -> list[str]:
    """Finds what is wrong with an index; reads all of it.

    Returns:
        One line a problem; empty when the index is sound.

    Raises:
        InputError: no index there.
    """
    read_header(path)
    try:
        index = open_index(path, k1=0.9, b=0.4, num_threads=1)
        check = getattr(index, "verify", None)  # Lucene's own checks run when it opens
        if check is not None:
            check()
    except InputError as error:
        return [str(error)]
    return []
