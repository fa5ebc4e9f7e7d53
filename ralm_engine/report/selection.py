"""Which strides of a run the report shows: all of a small one, windows and extremes of a large one.

Legend: J strides of the run, in table order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

# Long enough to read a paragraph in (160 tokens at stride 4), short enough to place 30 of them.
WINDOW_STRIDES = 40
# The rest of the budget goes to windows: extremes answer "where", windows answer "how, in general".
_EXTREME_SHARE = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is shown.

    Attributes:
        rows: selected strides in table order, without repeats.
        total: strides there are.
        windows: evenly spread windows among the selected; 0 when everything is shown.
    """

    rows: Int64Array
    total: int
    windows: int


def select_strides(gains: Mapping[str, Float64Array], *, total: int, limit: int) -> Selection:
    """Chooses at most `limit` strides.

    Args:
        gains: per ranker the summed gain of each stride [J], NaN where unknown; the ranker
            `oracle`, if there, is what the regret of the others is measured against.
        total: J.
        limit: strides to show at most.
    """
    if total <= limit:
        return Selection(rows=np.arange(total, dtype=np.int64), total=total, windows=0)
    extremes = _extremes(gains, budget=int(limit * _EXTREME_SHARE))
    windows = max(1, (limit - extremes.size) // WINDOW_STRIDES)
    size = min(WINDOW_STRIDES, limit - extremes.size)
    starts = np.linspace(0, total - size, windows).round().astype(np.int64)
    spread = (starts[:, None] + np.arange(size, dtype=np.int64)).ravel()
    rows = np.union1d(extremes, spread).astype(np.int64)
    return Selection(rows=rows, total=total, windows=windows)


def _extremes(gains: Mapping[str, Float64Array], *, budget: int) -> Int64Array:
    orders: list[Float64Array] = []
    oracle = gains.get("oracle")
    for name, gain in gains.items():
        orders += [gain, -gain]
        if oracle is not None and name != "oracle":
            orders.append(oracle - gain)
    each = budget // max(len(orders), 1)
    found = [_largest(order, each) for order in orders]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def _largest(values: Float64Array, size: int) -> Int64Array:
    """Rows of the `size` largest positive values; ties go to the lower row."""
    usable = np.flatnonzero(np.nan_to_num(values, nan=-1.0) > 0)
    order = np.lexsort((usable, -values[usable]))
    return usable[order[:size]].astype(np.int64)


def stride_limit(*, wanted: int, candidates: int, targets: int, budget_bytes: int) -> int:
    """Strides that fit `budget_bytes` of JSON, at most `wanted` and at least one window.

    Args:
        wanted: what the caller asked for.
        candidates: most candidates a stride has.
        targets: most targets a stride has.
        budget_bytes: bytes that the strides may take.
    """
    # A written NLL takes about 6 bytes, a candidate's other figures 24, a token's text 8, and the
    # query with the key names 400 (measured on the synthetic run of the tests).
    each = candidates * (24 + 6 * targets) + 14 * targets + 400
    return min(wanted, max(WINDOW_STRIDES, budget_bytes // each))


def passage_order(chosen: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[int]:
    """Passages in the order in which their texts are worth their bytes, without repeats.

    First those that a ranker chose, then the others by rank.

    Args:
        chosen: per stride the ranks that some ranker chose; -1 for none.
        passages: per stride its passages by rank.
    """
    ordered: dict[int, None] = {}
    for ranks, rows in zip(chosen, passages, strict=True):
        ordered.update(dict.fromkeys(rows[rank] for rank in ranks if rank >= 0))
    for rank in range(max((len(rows) for rows in passages), default=0)):
        ordered.update(dict.fromkeys(rows[rank] for rows in passages if rank < len(rows)))
    return list(ordered)
