"""A summary as lines of the `summary` table: figure by figure, with denominator and interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ralm_engine.schema import SUMMARY

Summary = dict[str, Any]
Row = tuple[str, str, str, str, float | None, float | None, float | None, int]
"""metric, ranker, scope, denominator, value, low, high, count."""

ALL = "all"


def summary_table(summary: Summary) -> pa.Table:
    """The lines of a summary, in the schema SUMMARY."""
    rows = list(_rows(summary))
    columns = zip(*rows, strict=True) if rows else [() for _ in SUMMARY]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SUMMARY, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SUMMARY)


def _rows(summary: Summary) -> Iterator[Row]:
    yield from _perplexities(summary, ALL)
    tokens = summary["counts"]["tokens"]
    for ranker, entry in summary["bits_per_byte"].items():
        yield ("bits_per_byte", ranker, ALL, "byte", *_ends(entry), summary["counts"]["bytes"] or 0)
    for other, rankers in summary["difference"].items():
        for ranker, figures in rankers.items():
            for key, entry in figures.items():
                count = summary["divisor"][ranker][key]
                yield (f"difference_to_{other}", ranker, ALL, key, *_ends(entry), count)
    for start, rankers in summary["gap_closed"].items():
        for ranker, entry in rankers.items():
            yield (f"gap_closed_from_{start}", ranker, ALL, "token", *_ends(entry), tokens)
    for entry in summary["oracle_curve"]:
        yield ("oracle_at", "oracle", ALL, str(entry["depth"]), *_ends(entry), tokens)
    for entry in summary["lookback"]:
        yield ("lookback", "logprob", ALL, str(entry["lookback"]), *_ends(entry), tokens)
    yield from _choices(summary)
    for stream in summary["streams"]:
        yield from _perplexities(stream, stream["stream_id"])


def _choices(summary: Summary) -> Iterator[Row]:
    strides = summary["oracle_choice"]["strides"]
    for rank, count in enumerate(summary["oracle_choice"]["count"]):
        share = count / strides if strides else None
        yield ("oracle_choice", "oracle", ALL, str(rank), share, None, None, strides)
    for ranker, share in summary["agreement"].items():
        yield ("agreement", ranker, ALL, "stride", share, None, None, strides)
    for circumstance, buckets in summary["gain"].items():
        for place, bucket in enumerate(buckets):
            for ranker, gain in bucket["gain"].items():
                key = f"gain_by_{circumstance}"
                yield (key, ranker, ALL, str(place), gain, None, None, bucket["tokens"])


def _perplexities(figures: Mapping[str, Any], scope: str) -> Iterator[Row]:
    for ranker, row in figures["perplexity"].items():
        for key, value in row.items():
            low, high = figures["interval"][ranker][key]
            count = figures["divisor"][ranker][key]
            yield ("perplexity", ranker, scope, key, value, low, high, count)


def _ends(entry: Mapping[str, Any]) -> Sequence[float | None]:
    return entry["value"], entry["low"], entry["high"]
