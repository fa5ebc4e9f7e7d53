"""The perplexity table: every ranker by every denominator, with intervals and differences."""

from __future__ import annotations

from collections.abc import Mapping

from ralm_engine.report import markup, numbers
from ralm_engine.report.charts import Axes, Point, dot_chart
from ralm_engine.report.embed import html_text
from ralm_engine.report.model import (
    DENOMINATORS,
    Estimate,
    RankerFigures,
    RunFigures,
    ranker_description,
    ranker_name,
)

# A table of more lines is for summary.json, not for reading.
_SHOWN_STREAMS = 50
_COUNTED = {"token": "scored tokens", "word": "words", "space": "spaces", "byte": "bytes"}


def table_section(figures: RunFigures, *, stride: object) -> str:
    """The table, the note that explains it, and the differences as a picture."""
    text = (
        "Perplexity is exp(sum NLL / count). The same summed NLL is divided by four counts: scored "
        "tokens, white-space words, single spaces (the published WikiText-103 convention) and "
        "UTF-8 bytes, the last three of the whole text. Ranges are 95% intervals of a paired "
        f"bootstrap over strides of {stride} tokens. The best choice that does not look at the "
        "target is bold and starred; the oracle is a bound."
    )
    return markup.section(
        "perplexity",
        "Perplexity",
        markup.note(text),
        _table(figures),
        _differences(figures),
        _streams(figures),
    )


def _table(figures: RunFigures) -> str:
    head = "".join(_head(figures, name) for name in DENOMINATORS)
    rest = "".join(
        f'<th scope="col" class="num">{name}<small>{unit}</small></th>'
        for name, unit in (
            ("bits per byte", _over(figures, "byte")),
            ("against none", "token perplexity"),
            ("against first", "token perplexity"),
        )
    )
    rows = "".join(
        _row(line, best=_best(figures), counts=figures.counts) for line in figures.rankers
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Perplexity table"><table>'
        f'<thead><tr><th scope="col">Ranker</th>{head}{rest}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _head(figures: RunFigures, name: str) -> str:
    return f'<th scope="col" class="num">per {name}<small>{_over(figures, name)}</small></th>'


def _over(figures: RunFigures, name: str) -> str:
    count = figures.counts[name]
    if count is None:
        return "known when all text is scored"
    return f"\N{DIVISION SIGN} {numbers.count(count)} {_COUNTED[name]}"


def _best(figures: RunFigures) -> str | None:
    """The ranker with the lowest token perplexity; the order is the same for every denominator."""
    known = [
        (value, line.ranker)
        for line in figures.rankers
        if line.ranker != "oracle" and (value := line.perplexity["token"].value) is not None
    ]
    return min(known)[1] if known else None


def _own_divisor(line: RankerFigures, name: str, counts: Mapping[str, int | None]) -> int | None:
    """What this figure is divided by where that is not what the column's head says."""
    own = line.divisor[name]
    return own if own and own != counts[name] else None


def _row(line: RankerFigures, *, best: str | None, counts: Mapping[str, int | None]) -> str:
    chosen = line.ranker == best
    cells = "".join(
        _cell(line.perplexity[name], best=chosen, divisor=_own_divisor(line, name, counts))
        for name in DENOMINATORS
    )
    cells += _cell(line.bits_per_byte, digits=3, best=chosen)
    cells += _cell(line.against_none, sign=True) + _cell(line.against_first, sign=True)
    kind = ' class="bound"' if line.ranker == "oracle" else ""
    name = f"{html_text(ranker_name(line.ranker))}"
    about = f'<span class="desc">{html_text(ranker_description(line.ranker))}</span>'
    return f'<tr{kind}><th scope="row">{name}{about}</th>{cells}</tr>'


def _cell(
    estimate: Estimate | None,
    *,
    digits: int = 2,
    sign: bool = False,
    best: bool = False,
    divisor: int | None = None,
) -> str:
    if estimate is None:
        return '<td class="num"><span aria-label="not applicable">\N{EN DASH}</span></td>'
    write = numbers.signed if sign else numbers.fixed
    value = write(estimate.value, digits)
    shown = f'<span class="best">{value}</span>' if best and estimate.value is not None else value
    bounds = numbers.interval(estimate.low, estimate.high, digits, sign=sign)
    if divisor is not None:
        bounds += f" \N{DIVISION SIGN} {numbers.count(divisor)}"
    return f'<td class="num">{shown}<span class="range">{bounds}</span></td>'


def _differences(figures: RunFigures) -> str:
    points = [
        Point(
            x=at,
            name=ranker_name(line.ranker),
            value=line.against_none.value,
            low=line.against_none.low,
            high=line.against_none.high,
        )
        for at, line in enumerate(figures.rankers)
        if line.against_none is not None and line.against_none.value is not None
    ]
    if not points:
        return ""
    axes = Axes(
        label="Difference in token perplexity to no retrieval, per ranker",
        x_title="difference in token perplexity (left is better)",
        y_title="difference",
    )
    chart = markup.figure(
        dot_chart(points, axes=axes, zero="no retrieval"),
        title="Difference to no retrieval",
        caption="Paired: the same strides are resampled for both. A whisker that crosses the line "
        "means that this run cannot tell the two apart.",
        points=points,
        axes=axes,
    )
    return f'<div class="charts">{chart}</div>'


def _streams(figures: RunFigures) -> str:
    """Token perplexity of the longest streams; nothing where there is only one."""
    if len(figures.streams) < 2:
        return ""
    rankers = [line.ranker for line in figures.rankers]
    longest = sorted(figures.streams, key=lambda stream: -stream.tokens)[:_SHOWN_STREAMS]
    rows = [
        [
            stream.stream_id,
            numbers.count(stream.tokens),
            *(numbers.fixed(stream.perplexity.get(name)) for name in rankers),
        ]
        for stream in longest
    ]
    head = ["Stream", "scored tokens", *map(ranker_name, rankers)]
    shown = len(longest)
    title = f"Token perplexity of each of the {shown:,} streams"
    if shown < len(figures.streams):
        title = f"Token perplexity of the {shown:,} longest streams"
    return markup.details(title, markup.table(head, rows))
