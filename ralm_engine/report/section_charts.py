"""The pictures: how deep the good passages lie, who finds them, and where retrieval helps."""

from __future__ import annotations

from collections.abc import Sequence

from ralm_engine.report import markup, numbers
from ralm_engine.report.charts import (
    Axes,
    Point,
    Reference,
    column_chart,
    dot_chart,
    line_chart,
)
from ralm_engine.report.model import Bucket, Estimate, RunFigures, ranker_name, short_name

# Below this a range shows the luck of a few strides.
_LEAST_STRIDES = 5


def oracle_section(figures: RunFigures) -> str:
    """The oracle by depth, its choices, agreement with it, and the lookback sweep."""
    charts = [
        _curve(figures),
        _choice(figures),
        _agreement(figures),
        _gap_closed(figures),
        _lookback(figures),
    ]
    shown = "".join(chart for chart in charts if chart)
    if not shown:
        return ""
    text = (
        "What the retrieved passages could give. The oracle picks, per stride, the passage under "
        "which the target is most probable; the other rankers choose without seeing the target."
    )
    return markup.section(
        "oracle", "Oracle and rankers", markup.note(text), f'<div class="charts">{shown}</div>'
    )


def bucket_section(figures: RunFigures) -> str:
    """Where the first passage helps: gain by score, entropy and position."""
    charts = [
        _bucket_chart(name, buckets)
        for name, buckets in figures.buckets.items()
        if buckets and min(bucket.strides for bucket in buckets) >= _LEAST_STRIDES
    ]
    if not charts:
        return ""
    text = (
        "Mean gain per token of the first passage over no retrieval, for strides grouped by what "
        "was known before the target: ranges hold about equally many strides."
    )
    return markup.section(
        "where", "Where retrieval helps", markup.note(text),
        f'<div class="charts">{"".join(charts)}</div>',
    )  # fmt: skip


def _point(x: float, name: str, estimate: Estimate) -> Point | None:
    if estimate.value is None:
        return None
    return Point(x=x, name=name, value=estimate.value, low=estimate.low, high=estimate.high)


def _points(pairs: Sequence[tuple[int, Estimate]], prefix: str) -> list[Point]:
    made = (_point(x, f"{prefix} {x}", estimate) for x, estimate in pairs)
    return [point for point in made if point is not None]


def _references(figures: RunFigures, *rankers: str) -> list[Reference]:
    return [
        Reference(name=short_name(ranker), value=value)
        for ranker in rankers
        if (value := figures.token_perplexity(ranker)) is not None
    ]


def _curve(figures: RunFigures) -> str:
    points = _points(figures.oracle_at, "depth")
    if len(points) < 2:
        return ""
    axes = Axes(
        label="Token perplexity of the oracle by depth",
        x_title="passages to choose from",
        y_title="token perplexity",
    )
    chart = line_chart(points, axes=axes, references=_references(figures, "none", "logprob"))
    return markup.figure(
        chart, title="Oracle by depth", points=points, axes=axes,
        caption="Token perplexity when the best of the first 1 to k passages is taken; "
        "the band is the 95% interval.",
    )  # fmt: skip


def _choice(figures: RunFigures) -> str:
    counts, total = figures.oracle_choice, figures.strides_with_candidates
    if len(counts) < 2 or not total:
        return ""
    points = [Point(x=r, name=f"rank {r}", value=n / total) for r, n in enumerate(counts)]
    axes = Axes(
        label="Where the oracle's choice stands in the retrieved list",
        x_title="rank in the retrieved list",
        y_title="share of strides",
        as_percent=True,
    )
    even = Reference(name="even shares", value=1 / len(counts))
    return markup.figure(
        column_chart(points, axes=axes, reference=even), title="What the oracle takes",
        points=points, axes=axes,
        caption=f"Share of the {total:,} strides with candidates in which each rank is the best. "
        f"In {numbers.percent(figures.oracle_behind / total)} of them even the best passage is "
        "worse than none.",
    )  # fmt: skip


def _agreement(figures: RunFigures) -> str:
    points = [
        Point(x=at, name=ranker_name(line.ranker), value=line.agreement)
        for at, line in enumerate(figures.rankers)
        if line.agreement is not None and line.ranker not in ("none", "oracle")
    ]
    if not points:
        return ""
    axes = Axes(
        label="Share of strides where a ranker chooses as the oracle does",
        x_title="share of strides",
        y_title="agreement",
        as_percent=True,
    )
    return markup.figure(
        dot_chart(points, axes=axes, zero=""), title="Agreement with the oracle",
        points=points, axes=axes,
        caption=f"Share of the {figures.strides_with_candidates:,} strides with candidates "
        "in which the ranker takes the oracle's passage.",
    )  # fmt: skip


def _gap_closed(figures: RunFigures) -> str:
    made = [
        _point(at, ranker_name(line.ranker), line.gap_closed)
        for at, line in enumerate(figures.rankers)
        if line.gap_closed is not None
    ]
    points = [point for point in made if point is not None]
    if not points:
        return ""
    axes = Axes(
        label="Share of the gap between no retrieval and the oracle that each ranker closes",
        x_title="share of the gap (right is better)",
        y_title="share",
        as_percent=True,
    )
    return markup.figure(
        dot_chart(points, axes=axes, zero="no retrieval"), title="Gap to the oracle closed",
        points=points, axes=axes,
        caption="Share of the oracle's gain in NLL that the ranker reaches, with its 95% interval.",
    )  # fmt: skip


def _lookback(figures: RunFigures) -> str:
    points = _points(figures.lookback, "last tokens:")
    if len(points) < 2:
        return ""
    axes = Axes(
        label="Token perplexity of zero-shot reranking by number of ranking tokens",
        x_title="prefix tokens the ranker predicts",
        y_title="token perplexity",
    )
    chart = line_chart(points, axes=axes, references=_references(figures, "none", "first"))
    return markup.figure(
        chart, title="Lookback of zero-shot reranking", points=points, axes=axes,
        caption="Passages are ranked by the probability of the last tokens before the target.",
    )  # fmt: skip


def _range(bucket: Bucket, digits: int) -> str:
    low, high = (numbers.fixed(end, digits) for end in (bucket.low, bucket.high))
    return low if low == high else f"{low} to {high}"


def _bucket_chart(name: str, buckets: Sequence[Bucket]) -> str:
    digits = 0 if max(abs(b.high) for b in buckets) >= 100 else 2
    points = [Point(x=at, name=_range(b, digits), value=b.gain) for at, b in enumerate(buckets)]
    axes = Axes(
        label=f"Mean gain per token by {name}", x_title="gain per token, nat (right is better)",
        y_title="gain", digits=3,
    )  # fmt: skip
    each = sorted(b.strides for b in buckets)
    return markup.figure(
        dot_chart(points, axes=axes, zero="no gain"), title=f"By {name}", points=points, axes=axes,
        caption=f"{sum(each):,} strides, {each[0]:,} to {each[-1]:,} in a range.",
    )  # fmt: skip
