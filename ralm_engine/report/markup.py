"""HTML building blocks of the sections: tables, lists of facts, figures with their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ralm_engine.report.charts import Axes, Point
from ralm_engine.report.embed import html_text


def section(name: str, title: str, *parts: str) -> str:
    """A titled section that the navigation can point at."""
    head = f'<h2 id="{name}-title">{html_text(title)}</h2>'
    body = "".join(parts)
    names = f'id="{name}" aria-labelledby="{name}-title"'
    return f'<section class="wrap" {names}>{head}{body}</section>'


def note(text: str) -> str:
    """A paragraph of explanation in the quiet colour."""
    return f'<p class="note">{html_text(text)}</p>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """A plain table: first column names, the others right-aligned figures; cells are text."""
    first = f'<th scope="col">{html_text(head[0])}</th>'
    names = first + "".join(f'<th scope="col" class="num">{html_text(n)}</th>' for n in head[1:])
    lines = []
    for row in rows:
        cells = "".join(f'<td class="num">{html_text(cell)}</td>' for cell in row[1:])
        lines.append(f'<tr><th scope="row">{html_text(row[0])}</th>{cells}</tr>')
    title = f"<caption>{html_text(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{names}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]], *, kind: str) -> str:
    """Names and values: `facts` as a grid of key figures, `kv` as two columns."""
    if kind == "facts":
        body = "".join(
            f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>"
            for name, value in pairs
        )
    else:
        body = "".join(
            f"<dt>{html_text(name)}</dt><dd>{html_text(value)}</dd>" for name, value in pairs
        )
    return f'<dl class="{kind}">{body}</dl>'


def details(summary: str, body: str, *, printed: bool = False) -> str:
    """A closed disclosure; `printed` ones open on paper."""
    kind = ' class="for-print"' if printed else ""
    return f"<details{kind}><summary>{html_text(summary)}</summary>{body}</details>"


def figure(chart: str, *, title: str, caption: str, points: Sequence[Point], axes: Axes) -> str:
    """A chart under its title and caption, and the same figures as a table."""
    with_interval = any(p.low is not None for p in points)
    head = [axes.x_title, axes.y_title] + (["95% interval"] if with_interval else [])
    rows = []
    for p in points:
        row = [p.name, axes.write(p.value)]
        if with_interval:
            known = p.low is not None and p.high is not None
            row.append(f"{axes.write(p.low)} to {axes.write(p.high)}" if known else "")
        rows.append(row)
    return (
        f"<figure><figcaption><h3>{html_text(title)}</h3><p>{html_text(caption)}</p></figcaption>"
        f"{chart}{details('The same as a table', table(head, rows))}</figure>"
    )
