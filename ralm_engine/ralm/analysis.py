"""From the tables of a run to its summary, without a model, a GPU or torch.

`analyze_run` reads and computes, `write_summary` keeps the result as summary.json and
summary.parquet. Everything is a fold over `strides` and `candidates`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ralm_engine.errors import RunError
from ralm_engine.ralm.analysis_bootstrap import Units
from ralm_engine.ralm.analysis_choices import agreement, gain_by, oracle_choice, retrieval_counts
from ralm_engine.ralm.analysis_counts import TextCounts
from ralm_engine.ralm.analysis_read import Outcome, RunFold, Tally, read_fold
from ralm_engine.ralm.analysis_rows import Summary, summary_table
from ralm_engine.ralm.analysis_scope import DENOMINATORS, Scope
from ralm_engine.ralm.analysis_streams import MAX_STREAMS, scope_figures, stream_figures
from ralm_engine.schema import SCHEMA_VERSION
from ralm_engine.store.rundir import RunDirectory

DEFAULT_MAX_NONFINITE_RATIO = 0.001
_REFERENCES = ("none", "first")


def analyze_run(
    path: str | Path | RunDirectory,
    *,
    seed: int = 0,
    resamples: int = 1000,
    max_nonfinite_ratio: float = DEFAULT_MAX_NONFINITE_RATIO,
) -> Summary:
    """Computes every figure of a run, finished or not.

    Token perplexities divide by the scored tokens (without NaN and infinite ones), the others by
    the words, spaces and bytes of the whole text; those are null until the text is scored to its
    end. A figure with nothing to divide by is null, never NaN. Intervals are 95% of a paired
    bootstrap over strides.

    Args:
        path: the run directory.
        seed: of the `random` ranker and of the bootstrap.
        resamples: of the bootstrap; 0 for no intervals.
        max_nonfinite_ratio: NaN and infinite target NLLs, of the baseline or of the candidates,
            that are tolerated.

    Returns:
        The summary as plain JSON values: `perplexity`, `interval` and `divisor` by ranker and
        denominator; `bits_per_byte`, `difference` and `gap_closed` with intervals; `oracle_at` and
        `lookback` in token perplexity; `oracle_choice`, `agreement`, `gain`; `counts`, `nonfinite`,
        `retrieval`, `shards`, `streams`, `throughput` and `settings`.

    Raises:
        InputError: no run there, or a damaged file.
        RunError: the tables contradict each other, or too many NLLs are NaN or infinite.
    """
    run = path if isinstance(path, RunDirectory) else RunDirectory.open(path)
    committed = len(run.committed())
    fold = read_fold(run, seed=seed)
    _check_nonfinite(fold.tally, max_nonfinite_ratio, label=run.location.label)
    counts = TextCounts.read(run, fold)
    columns = _columns(fold)
    scope = Scope.of(
        columns,
        counts=counts.over_all(),
        units=Units.of(fold, list(columns.values())),
        resamples=resamples,
        rng=np.random.default_rng([seed, 0]),
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "complete": run.is_complete,
        "shards": {"committed": committed, "planned": run.num_shards},
        **_ranker_figures(fold, scope),
        **_curves(fold, scope),
        "oracle_choice": oracle_choice(fold),
        "agreement": {name: agreement(fold, name) for name in fold.rankers if name != "none"},
        "gain": gain_by(fold),
        "counts": _counts(fold, counts),
        "nonfinite": _nonfinite(fold.tally),
        "retrieval": retrieval_counts(fold),
        "streams": stream_figures(fold, counts, scope, seed=seed, resamples=resamples),
        "throughput": _throughput(run),
        "settings": {"seed": seed, "resamples": resamples, "confidence": 0.95},
    }


def write_summary(path: str | Path | RunDirectory, summary: Summary) -> None:
    """Writes summary.parquet and summary.json into the run directory, each at once.

    Raises:
        InputError: no run there.
        RunError: the filesystem refused.
    """
    run = path if isinstance(path, RunDirectory) else RunDirectory.open(path)
    run.write_table("summary", summary_table(summary))
    run.write_text("summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")


def _columns(fold: RunFold) -> dict[str, Outcome]:
    """Everything that gets an interval: rankers, shorter lookbacks, shallower oracles."""
    columns = {name: fold.outcome[name] for name in fold.rankers}
    columns |= {name: fold.outcome[name] for _, name in fold.lookbacks}
    depths = range(1, fold.num_depths)
    return columns | {_depth_name(depth): fold.oracle_at(depth) for depth in depths}


def _depth_name(depth: int) -> str:
    return f"oracle@{depth}"


def _ranker_figures(fold: RunFold, scope: Scope) -> dict[str, Any]:
    rankers = fold.rankers
    own = Scope(
        names=rankers,
        nll_C=scope.nll_C[: len(rankers)],
        tokens_C=scope.tokens_C[: len(rankers)],
        counts=scope.counts,
        means_RC=None if scope.means_RC is None else scope.means_RC[:, : len(rankers)],
    )
    return {
        **scope_figures(own),
        "bits_per_byte": {name: own.bits_per_byte(name).as_dict() for name in rankers},
        "difference": {
            other: {
                name: {key: own.difference(name, other, key).as_dict() for key in DENOMINATORS}
                for name in rankers
                if name != other
            }
            for other in _REFERENCES
        },
        "gap_closed": {
            start: {
                name: own.gap_closed(name, start).as_dict()
                for name in rankers
                if name not in (start, "oracle")
            }
            for start in _REFERENCES
        },
    }


def _curves(fold: RunFold, scope: Scope) -> dict[str, Any]:
    depth = fold.num_depths
    names = [*(_depth_name(place) for place in range(1, depth)), *(["oracle"] if depth else [])]
    curve = [
        {"depth": place, **scope.perplexity(name, "token").as_dict()}
        for place, name in enumerate(names, start=1)
    ]
    lookback = [
        {
            "lookback": length,
            **scope.perplexity(name, "token").as_dict(),
            "agreement": agreement(fold, name),
        }
        for length, name in fold.lookbacks
    ]
    values = [entry["value"] for entry in curve]
    return {"oracle_at": values, "oracle_curve": curve, "lookback": lookback}


def _counts(fold: RunFold, counts: TextCounts) -> dict[str, Any]:
    whole = counts.over_all()
    return {
        "tokens": int(counts.scored_N.sum()),
        "words": whole["word"],
        "spaces": whole["space"],
        "bytes": whole["byte"],
        "streams": counts.num_streams,
        "streams_listed": min(int(np.count_nonzero(counts.scored_N)), MAX_STREAMS),
        "empty_streams": counts.num_empty,
        "strides": int(np.count_nonzero(fold.stride_S >= 0)),
    }


def _nonfinite(tally: Tally) -> dict[str, Any]:
    return {
        "baseline": tally.baseline_bad,
        "baseline_ratio": tally.baseline_bad / max(tally.baseline_tokens, 1),
        "candidates": tally.candidate_bad,
        "candidates_ratio": tally.candidate_bad / max(tally.candidate_tokens, 1),
    }


def _check_nonfinite(tally: Tally, limit: float, *, label: str) -> None:
    sides = {
        "without retrieval": (tally.baseline_bad, tally.baseline_tokens),
        "given a candidate": (tally.candidate_bad, tally.candidate_tokens),
    }
    for side, (bad, tokens) in sides.items():
        if bad > limit * tokens:
            raise RunError(
                f"{label}: {bad} of {tokens} target NLLs {side} are NaN or infinite "
                f"({bad / tokens:.2%}), more than max_nonfinite_ratio = {limit:.2%}",
                hint="try [model] dtype float32 or bfloat16, or raise max_nonfinite_ratio",
            )


def _throughput(run: RunDirectory) -> Mapping[str, Any] | None:
    """Sums of the timing table; None without one."""
    table = run.tables("timing")
    if not table.num_rows:
        return None
    sums = {
        name: pc.sum(table.column(name)).as_py()
        for name in table.column_names
        if name not in ("part", "peak_bytes", "worker", "finished_at")
    }
    seconds = sums["score_seconds"]
    forwarded = sums["tokens_forwarded"]
    return {
        **sums,
        "peak_bytes": pc.max(table.column("peak_bytes")).as_py(),
        "tokens_forwarded_per_second": forwarded / seconds if seconds else None,
        "share_saved": 1 - forwarded / sums["tokens_asked"] if sums["tokens_asked"] else None,
        "workers": len(table.column("worker").unique()),
    }
