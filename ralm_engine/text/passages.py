"""Passages: at most 100 words each, cut from any corpus, kept once in an Arrow file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ralm_engine.errors import InputError
from ralm_engine.text.corpus import as_paths, check_sources, read_documents
from ralm_engine.text.passage_builder import SplitRule, build_passages
from ralm_engine.text.passage_store import NOT_DUPLICATE, PassageCounts, PassageStore, Progress

__all__ = [
    "NOT_DUPLICATE",
    "PassageCounts",
    "PassageStore",
    "PassagesConfig",
    "Progress",
    "SplitRule",
    "build_passages",
    "ensure_passages",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassagesConfig:
    """What is retrieved from. The [passages] section of a job file.

    Attributes:
        path: one source or several, of any format of the corpus readers.
        exclude_titles: file of titles, one a line, whose passages are never retrieved.
        exclude_ids: file of passage ids, one a line, that are never retrieved.
        exclude_source: never retrieve passages cut from the evaluated document itself.
        split_words: white-space words that a passage cut from a longer document holds at most.
        split_tolerance: a document that exceeds split_words by at most this share stays whole, so
            that ready-made passages, whose makers counted words in their own way, keep their rows.
        store: where the passage file is kept; empty: beside the index.
    """

    path: str | tuple[str, ...]
    exclude_titles: str = ""
    exclude_ids: str = ""
    exclude_source: bool = False
    split_words: int = 100
    split_tolerance: float = 0.1
    store: str = ""

    def __post_init__(self) -> None:
        as_paths(self.path)
        if self.split_words < 1:
            raise InputError(f"[passages] split_words = {self.split_words} must be at least 1")
        if self.split_tolerance < 0:
            raise InputError(
                f"[passages] split_tolerance = {self.split_tolerance} must not be negative"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """The sources as a tuple."""
        return as_paths(self.path)


def ensure_passages(
    cfg: PassagesConfig, out: Path, *, progress: Progress | None = None
) -> PassageStore:
    """Opens the passage file of a job, or builds it where it is absent or its sources changed.

    A file counts as current when the names, sizes and modification times of its sources and the
    passage length are those it was built with; data sets of the hub count as unchanging.

    Raises:
        InputError: a source is missing or bad, or `out` exists and is no whole passage file.
        RunError: the disk is full or cannot be written.
    """
    check_sources(cfg.paths)
    build = {
        "sources": [_identity(name) for name in cfg.paths],
        "split_words": cfg.split_words,
        "split_tolerance": cfg.split_tolerance,
    }
    if out.exists():
        store = PassageStore.open(out)
        if store.build == build:
            return store
    return build_passages(
        read_documents(cfg.paths),
        out,
        split=SplitRule(max_words=cfg.split_words, tolerance=cfg.split_tolerance),
        build=build,
        progress=progress,
    )


def _identity(name: str) -> list[object]:
    path = Path(name)
    if not path.exists():
        return [name]
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]
