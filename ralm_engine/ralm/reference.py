"""The rankers of `folds`, one stride at a time: slow, obvious, and the specification."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Line = Mapping[str, Any]
"""A line of a table as a dict, the way pyarrow's `to_pylist` gives it."""


def choose_slowly(ranker: str, candidates: Sequence[Line], *, length: int | None = None) -> int:
    """The rank that a ranker chooses among the candidates of one stride; -1 = the baseline.

    Args:
        ranker: first, logprob, oracle or the name of a `ranker_*` column.
        candidates: the stride's candidate lines.
        length: last tokens that logprob sums, or depth of the oracle; all when None.
    """
    best, best_cost = -1, math.inf
    for line in sorted(candidates, key=lambda line: line["rank"]):
        rank, target = line["rank"], line["target_nll"]
        if line["status"] != "ok" or not all(map(math.isfinite, target)):
            continue
        cost = float(rank)
        if ranker == "oracle":
            cost = sum32(target) if length is None or rank < length else math.inf
        elif ranker == "logprob":
            values = line["rank_nll"] if line["rank_nll"] is not None else [math.nan]
            finite = all(map(math.isfinite, values))
            cost = sum32(values[-length:] if length else values) if finite else math.inf
        elif ranker != "first":
            cost = math.inf if line[ranker] is None else -line[ranker]
        if cost < best_cost:
            best, best_cost = rank, cost
    return best


def sum32(values: Sequence[float]) -> float:
    """The sum, newest value first, in float64, rounded to float32."""
    return float(np.float32(sum(reversed(values), start=0.0)))
