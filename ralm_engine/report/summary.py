"""From the analyses of a run (`summary.json`, or computed now) to the figures of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ralm_engine.ralm.analysis import analyze_run
from ralm_engine.report.model import (
    DENOMINATORS,
    Bucket,
    Estimate,
    RankerFigures,
    RunFigures,
    StreamFigures,
)
from ralm_engine.schema import SCHEMA_VERSION
from ralm_engine.store.rundir import RunDirectory

SUMMARY_NAME = "summary.json"
_COUNTS = {"token": "tokens", "word": "words", "space": "spaces", "byte": "bytes"}
_CIRCUMSTANCES = {
    "score": "retrieval score of the first passage",
    "entropy": "entropy without retrieval, nat",
    "position": "position in the stream, tokens",
}


def load_figures(run: RunDirectory) -> RunFigures:
    """The figures of a run, finished or not.

    What `summary.json` holds is used where it covers the shards that are there now. A run with too
    many NaNs is reported all the same: the page says how many.

    Raises:
        InputError: a table is missing or damaged.
        RunError: the tables contradict each other.
    """
    summary = _stored(run)
    if summary is None:
        seed = run.manifest.get("seed")
        summary = analyze_run(
            run, seed=seed if isinstance(seed, int) else 0, max_nonfinite_ratio=1.0
        )
    return figures_of(summary)


def figures_of(summary: Mapping[str, Any]) -> RunFigures:
    """Reads a summary as `analyze_run` gives it."""
    retrieval, nonfinite = summary["retrieval"], summary["nonfinite"]
    choice = summary["oracle_choice"]
    return RunFigures(
        rankers=[_ranker(summary, name) for name in summary["perplexity"]],
        counts={key: summary["counts"][name] for key, name in _COUNTS.items()},
        oracle_at=[(entry["depth"], _estimate(entry)) for entry in summary["oracle_curve"]],
        oracle_choice=choice["count"],
        oracle_behind=choice["behind_baseline"],
        strides_with_candidates=choice["strides"],
        lookback=[(entry["lookback"], _estimate(entry)) for entry in summary["lookback"]],
        buckets={
            title: [_bucket(entry) for entry in summary["gain"].get(name, [])]
            for name, title in _CIRCUMSTANCES.items()
        },
        facts={
            "strides": retrieval["strides"],
            "no_hits": retrieval["no_hits"],
            **{f"status {name}": n for name, n in retrieval["status"].items() if name != "ok"},
            "candidates": retrieval["candidates"],
            "unusable": retrieval["unusable"],
            "duplicates": retrieval["duplicates"],
            "nonfinite_baseline": nonfinite["baseline"],
            "nonfinite_candidates": nonfinite["candidates"],
            "empty_streams": summary["counts"]["empty_streams"],
        },
        streams=[_stream(entry) for entry in summary["streams"]],
        shards_done=summary["shards"]["committed"],
        shards_total=summary["shards"]["planned"],
    )


def _stored(run: RunDirectory) -> Mapping[str, Any] | None:
    """The stored summary, where it is readable and covers what is committed."""
    try:
        summary = json.loads((run.location / SUMMARY_NAME).read().to_pybytes())
        current = summary["shards"]["committed"] == len(run.committed())
        return summary if current and summary["schema_version"] == SCHEMA_VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        # Written by another version or damaged: it can always be computed again.
        return None


def _ranker(summary: Mapping[str, Any], name: str) -> RankerFigures:
    difference, closed = summary["difference"], summary["gap_closed"]
    return RankerFigures(
        ranker=name,
        perplexity=_perplexity(summary, name),
        divisor=summary["divisor"][name],
        bits_per_byte=_estimate(summary["bits_per_byte"][name]),
        against_none=_token_difference(difference["none"].get(name)),
        against_first=_token_difference(difference.get("first", {}).get(name)),
        agreement=summary["agreement"].get(name),
        gap_closed=_estimate(closed["none"][name]) if name in closed.get("none", {}) else None,
    )


def _perplexity(figures: Mapping[str, Any], name: str) -> dict[str, Estimate]:
    values, bounds = figures["perplexity"][name], figures["interval"][name]
    return {
        key: Estimate(value=values[key], low=bounds[key][0], high=bounds[key][1])
        for key in DENOMINATORS
    }


def _token_difference(by_denominator: Mapping[str, Any] | None) -> Estimate | None:
    return None if by_denominator is None else _estimate(by_denominator["token"])


def _estimate(entry: Mapping[str, Any]) -> Estimate:
    return Estimate(value=entry["value"], low=entry["low"], high=entry["high"])


def _bucket(entry: Mapping[str, Any]) -> Bucket:
    return Bucket(
        low=entry["from"], high=entry["to"], gain=entry["gain"]["first"], strides=entry["strides"]
    )


def _stream(entry: Mapping[str, Any]) -> StreamFigures:
    return StreamFigures(
        stream_id=entry["stream_id"],
        tokens=entry["tokens"],
        perplexity={name: row["token"] for name, row in entry["perplexity"].items()},
    )
