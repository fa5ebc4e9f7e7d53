"""The same figures stream by stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ralm_engine.ralm.analysis_bootstrap import Doubles, Units, resampled_means
from ralm_engine.ralm.analysis_counts import TextCounts
from ralm_engine.ralm.analysis_read import RunFold
from ralm_engine.ralm.analysis_scope import DENOMINATORS, Scope

# Each interval costs a resampling of its own: about 5 ms for a document of 60 strides.
MAX_INTERVALS = 100
MAX_STREAMS = 1_000
"""Streams in a summary, the longest ones; the tables of the run hold all."""


def stream_figures(
    fold: RunFold, counts: TextCounts, whole: Scope, *, seed: int, resamples: int
) -> list[dict[str, object]]:
    """Perplexities of each stream with a scored token, in the order of the run.

    Of the MAX_STREAMS longest ones where there are more; without intervals where there are more
    than MAX_INTERVALS.

    Args:
        fold: the run.
        counts: its texts.
        whole: the scope of all streams, which is that of the only one where there is but one.
        seed: of the resampling.
        resamples: how many; 0 for no intervals.
    """
    scored = np.flatnonzero(counts.scored_N)
    longest = scored[np.argsort(-counts.scored_N[scored], kind="stable")][:MAX_STREAMS]
    streams, names = np.sort(longest).tolist(), fold.rankers
    size = len(fold.stream_names)
    outcomes = [fold.outcome[name] for name in names]
    nll = [np.bincount(fold.stream_S, weights=o.nll, minlength=size) for o in outcomes]
    tokens = [np.bincount(fold.stream_S, weights=o.tokens, minlength=size) for o in outcomes]
    means: dict[int, Doubles] = {}
    if len(streams) == 1 and whole.means_RC is not None:
        means = {streams[0]: whole.means_RC[:, [whole.names.index(name) for name in names]]}
    elif len(streams) <= MAX_INTERVALS and resamples:
        means = _resampled(Units.of(fold, outcomes), streams, seed=seed, resamples=resamples)
    figures = []
    for stream in streams:
        scope = Scope(
            names=names,
            nll_C=[float(column[stream]) for column in nll],
            tokens_C=[int(column[stream]) for column in tokens],
            counts=counts.of_stream(stream),
            means_RC=means.get(stream),
        )
        label = {"stream_id": fold.stream_names[stream]}
        figures.append({**label, "tokens": int(counts.scored_N[stream]), **scope_figures(scope)})
    return figures


def scope_figures(scope: Scope) -> dict[str, object]:
    """Perplexity of each ranker by each denominator, with intervals and what it is divided by."""
    figures = {
        name: {key: scope.perplexity(name, key) for key in DENOMINATORS} for name in scope.names
    }
    return {
        "perplexity": {
            name: {key: figure.value for key, figure in row.items()}
            for name, row in figures.items()
        },
        "interval": {
            name: {key: [figure.low, figure.high] for key, figure in row.items()}
            for name, row in figures.items()
        },
        "divisor": {
            name: {key: figure.count for key, figure in row.items()}
            for name, row in figures.items()
        },
    }


def _resampled(
    units: Units, streams: Sequence[int], *, seed: int, resamples: int
) -> dict[int, Doubles]:
    order = np.argsort(units.stream_U, kind="stable")
    sorted_U = units.stream_U[order]
    means = {}
    for stream in streams:
        begin, end = np.searchsorted(sorted_U, [stream, stream + 1])
        rng = np.random.default_rng([seed, stream + 1])
        own = units.rows(order[begin:end])
        means[stream] = resampled_means(own, resamples=resamples, rng=rng)
    return means
