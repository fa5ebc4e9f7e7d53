"""What rankers choose and what it gains: the oracle's ranks, agreement, gain by circumstance.

Legend: S strides, B buckets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ralm_engine.ralm.analysis_columns import Mask
from ralm_engine.ralm.analysis_read import RunFold
from ralm_engine.ralm.folds import BASELINE
from ralm_engine.schema import WARMUP_STRIDE

Values = npt.NDArray[np.floating]

_NUM_BUCKETS = 10


def oracle_choice(fold: RunFold) -> dict[str, object]:
    """How often the oracle chooses each rank, and how often even that loses to the baseline."""
    retrieved = fold.retrieved_S
    oracle, none = fold.outcome["oracle"], fold.outcome["none"]
    chosen = oracle.choice[retrieved & (oracle.choice != BASELINE)]
    comparable = retrieved & (oracle.tokens == none.tokens)
    behind = comparable & (oracle.nll > none.nll)
    return {
        "count": np.bincount(chosen, minlength=fold.num_depths).tolist(),
        "strides": int(np.count_nonzero(retrieved)),
        "behind_baseline": int(np.count_nonzero(behind)),
    }


def agreement(fold: RunFold, ranker: str) -> float | None:
    """Share of the strides with candidates in which a ranker chooses what the oracle does."""
    retrieved = fold.retrieved_S
    if not retrieved.any():
        return None
    same = fold.outcome[ranker].choice == fold.outcome["oracle"].choice
    return float(np.mean(same[retrieved]))


def gain_by(fold: RunFold) -> dict[str, list[dict[str, object]]]:
    """Gain over the baseline by retrieval score, baseline entropy and position in the stream.

    Strides with candidates, in up to ten buckets of about equally many; the gain is in nats per
    token, positive where the passage helped.
    """
    circumstances: dict[str, Values] = {
        "score": fold.score_S,
        "entropy": fold.entropy_S,
        "position": fold.begin_S.astype(np.float64),
    }
    usable = fold.retrieved_S & (fold.outcome["none"].tokens == fold.length_S)
    return {
        name: _buckets(fold, values, usable & np.isfinite(values))
        for name, values in circumstances.items()
    }


def _buckets(fold: RunFold, values_S: Values, chosen: Mask) -> list[dict[str, object]]:
    values = values_S[chosen]
    if not values.size:
        return []
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _NUM_BUCKETS + 1)))
    count = max(edges.size - 1, 1)
    bucket = np.minimum(np.searchsorted(edges[1:-1], values, side="right"), count - 1)
    tokens_B = np.bincount(bucket, weights=fold.length_S[chosen], minlength=count)
    strides_B = np.bincount(bucket, minlength=count)
    gains = {}
    for ranker in fold.rankers:
        gain = fold.outcome["none"].nll.astype(np.float64) - fold.outcome[ranker].nll
        total = np.bincount(bucket, weights=gain[chosen], minlength=count)
        gains[ranker] = total / np.maximum(tokens_B, 1)
    return [
        {
            "from": float(edges[place]),
            "to": float(edges[min(place + 1, edges.size - 1)]),
            "strides": int(strides_B[place]),
            "tokens": int(tokens_B[place]),
            "gain": {name: float(gain[place]) for name, gain in gains.items() if name != "none"},
        }
        for place in range(count)
        if strides_B[place]
    ]


def retrieval_counts(fold: RunFold) -> dict[str, object]:
    """Strides without a hit, and candidates that repeat another one's text."""
    strides = int(np.count_nonzero(fold.stride_S != WARMUP_STRIDE))
    no_hits = int(np.count_nonzero((fold.stride_S != WARMUP_STRIDE) & (fold.hits_S == 0)))
    tally = fold.tally
    return {
        "strides": strides,
        "no_hits": no_hits,
        "no_hits_share": no_hits / strides if strides else None,
        "candidates": tally.candidates,
        "unusable": tally.unusable,
        "duplicates": tally.duplicates,
        "duplicates_share": tally.duplicates / tally.candidates if tally.candidates else None,
        "status": dict(sorted(tally.retrieval.items())),
    }
