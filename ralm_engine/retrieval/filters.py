"""Which passages must not be retrieved: listed ones, and those of the evaluated document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.errors import InputError
from ralm_engine.retrieval.protocol import PassageMask
from ralm_engine.text.lines import read_lines
from ralm_engine.text.passages import PassagesConfig, PassageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """What the lists of a job exclude.

    Attributes:
        mask: the excluded passages.
        listed: distinct titles and ids in the lists.
        unknown: those of them that no passage has, in list order.
    """

    mask: PassageMask
    listed: int
    unknown: tuple[str, ...]


def listed_exclusion(cfg: PassagesConfig, passages: PassageStore) -> Exclusion | None:
    """Applies `exclude_titles` and `exclude_ids`; None where the job has neither.

    Raises:
        InputError: a list is missing, unreadable, not UTF-8 or empty.
    """
    parts = [
        _matching(column, Path(name))
        for name, column in (
            (cfg.exclude_titles, passages.titles),
            (cfg.exclude_ids, passages.ids),
        )
        if name
    ]
    if not parts:
        return None
    rows = np.concatenate([part[0] for part in parts])
    return Exclusion(
        mask=PassageMask.of(rows, num_passages=passages.num_passages),
        listed=sum(part[1] for part in parts),
        unknown=tuple(name for part in parts for name in part[2]),
    )


def exclude_titles(passages: PassageStore, path: Path) -> Exclusion:
    """Excludes the passages whose title is a line of the file, exactly.

    Args:
        passages: N passages.
        path: UTF-8 text, one title a line; white space around it and blank lines do not count.

    Raises:
        InputError: the file is missing, unreadable, not UTF-8 or lists nothing.
    """
    rows, listed, unknown = _matching(passages.titles, path)
    mask = PassageMask.of(rows, num_passages=passages.num_passages)
    return Exclusion(mask=mask, listed=listed, unknown=unknown)


def exclude_ids(passages: PassageStore, path: Path) -> Exclusion:
    """Excludes the passages whose id is a line of the file; see `exclude_titles`."""
    rows, listed, unknown = _matching(passages.ids, path)
    mask = PassageMask.of(rows, num_passages=passages.num_passages)
    return Exclusion(mask=mask, listed=listed, unknown=unknown)


def exclude_source(passages: PassageStore, sources: Sequence[str]) -> PassageMask:
    """Excludes the passages that were cut from the given documents; see `exclude_sources`."""
    (mask,) = exclude_sources(passages, [sources])
    return mask


def exclude_sources(
    passages: PassageStore, sources: Sequence[Sequence[str]]
) -> tuple[PassageMask, ...]:
    """One mask per stream: the passages that were cut from the documents it holds.

    Reads the passages once, however many streams there are.

    Args:
        passages: N passages.
        sources: document ids of every stream, as StreamStore.sources gives them. Ids that no
            passage was cut from exclude nothing: the evaluated text need not be in the passages.
    """
    names = list(dict.fromkeys(name for stream in sources for name in stream))
    found = pc.index_in(passages.sources, value_set=pa.array(names, pa.string()))
    codes = pc.fill_null(found, -1).to_numpy()
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.argsort(codes[rows], kind="stable")]
    borders = np.searchsorted(codes[rows], np.arange(len(names) + 1))
    rows_of = {
        name: rows[low:high]
        for name, low, high in zip(names, borders[:-1], borders[1:], strict=True)
    }
    nothing = np.zeros(0, dtype=np.int64)
    return tuple(
        PassageMask.of(
            np.concatenate([nothing, *(rows_of[name] for name in stream)]),
            num_passages=passages.num_passages,
        )
        for stream in sources
    )


def union(*masks: PassageMask | None) -> PassageMask | None:
    """All exclusions together; None where there is none."""
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    rows = np.concatenate([mask.rows for mask in given])
    return PassageMask.of(rows, num_passages=given[0].num_passages)


def _matching(
    column: pa.ChunkedArray, path: Path
) -> tuple[npt.NDArray[np.int64], int, tuple[str, ...]]:
    # A dict keeps list order and drops repeats.
    names = list(dict.fromkeys(name for _, line in read_lines(path) if (name := line.strip())))
    if not names:
        raise InputError(f"{path} lists nothing to exclude", hint="one title or id a line")
    listed = pa.array(names, pa.string())
    found = pc.unique(column.filter(pc.is_in(column, value_set=listed)))
    known = pc.is_in(listed, value_set=found)
    unknown = listed.filter(pc.invert(known)).to_pylist()
    return _rows_in(column, listed), len(names), tuple(unknown)


def _rows_in(column: pa.ChunkedArray, values: pa.Array) -> npt.NDArray[np.int64]:
    hits: npt.NDArray[np.bool_] = pc.is_in(column, value_set=values).to_numpy()
    return np.flatnonzero(hits).astype(np.int64)
