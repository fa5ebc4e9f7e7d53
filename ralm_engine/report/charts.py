"""The report's three kinds of picture: a line with a band, columns, and dots with whiskers.

Every chart is inline SVG whose colours come from the page's style sheet, whose marks carry their
value for hover, focus and screen readers, and which is followed by the same figures as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from ralm_engine.report import numbers, svg

WIDTH, HEIGHT = 540.0, 300.0
_LEFT, _TOP, _BOTTOM = 50.0, 14.0, 252.0
_LABEL_GAP = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One mark: where it stands, what it is called, its value and 95% interval."""

    x: float
    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A named horizontal line to compare with."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What the axes say, and how values are written on the marks."""

    label: str
    x_title: str
    y_title: str
    digits: int = 2
    as_percent: bool = False

    def write(self, value: float | None) -> str:
        """`value` as the marks and tables show it."""
        if self.as_percent:
            return numbers.percent(value, 1)
        return numbers.fixed(value, self.digits)

    def tick_labels(self, values: list[float]) -> list[str]:
        """The labels of an axis that shows such values."""
        if self.as_percent:
            return [f"{label}%" for label in svg.tick_labels([100 * value for value in values])]
        return svg.tick_labels(values)

    def describe(self, point: Point) -> str:
        """The tip of one mark."""
        text = f"{point.name}: {self.write(point.value)}"
        if point.low is None or point.high is None:
            return text
        return f"{text} (95% {self.write(point.low)} to {self.write(point.high)})"


def line_chart(points: list[Point], *, axes: Axes, references: list[Reference]) -> str:
    """A line through the points with its interval as a band; references labelled at the right."""
    right = WIDTH - (104.0 if references else 16.0)
    values = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    y_ticks = svg.ticks(
        min(values + [r.value for r in references]), max(values + [r.value for r in references])
    )
    y = svg.Scale(low=y_ticks[0], high=y_ticks[-1], start=_BOTTOM, end=_TOP)
    x = svg.Scale(low=points[0].x, high=points[-1].x, start=_LEFT + 12, end=right - 12)
    parts = [_grid(y_ticks, y, right, axes), _x_labels(points, x, axes, right)]
    parts += _references(references, y, right)
    if all(p.low is not None and p.high is not None for p in points):
        parts.append(_band(points, x, y))
    path = " ".join(f"{x(p.x):.1f},{y(p.value):.1f}" for p in points)
    parts.append(svg.element("polyline", points=path, class_="line"))
    half = (x(points[-1].x) - x(points[0].x)) / max(len(points) - 1, 1) / 2
    for p in points:
        dot = svg.element("circle", cx=x(p.x), cy=y(p.value), r=4.0, class_="dot")
        area = svg.rect(
            x=x(p.x) - half, y=_TOP, width=2 * half, height=_BOTTOM - _TOP, class_="hit"
        )
        parts.append(svg.mark(axes.describe(p), area, dot))
    return _chart(axes, parts)


def column_chart(points: list[Point], *, axes: Axes, reference: Reference | None = None) -> str:
    """One column a point, from zero; the first is drawn stronger where it has a special place."""
    right = WIDTH - (104.0 if reference else 16.0)
    lowest = min([p.value for p in points] + [0.0])
    highest = max([p.value for p in points] + ([reference.value] if reference else []) + [0.0])
    y_ticks = svg.ticks(lowest, highest or 1.0)
    y = svg.Scale(low=y_ticks[0], high=y_ticks[-1], start=_BOTTOM, end=_TOP)
    slot = (right - _LEFT) / len(points)
    x = svg.Scale(
        low=points[0].x,
        high=points[-1].x,
        start=_LEFT + slot / 2,
        end=right - slot / 2,
    )
    parts = [_grid(y_ticks, y, right, axes), _x_labels(points, x, axes, right)]
    for p in points:
        centre, top = x(p.x), y(max(p.value, 0.0))
        bar = svg.rect(
            x=centre - slot * 0.38,
            y=top,
            width=slot * 0.76,
            height=abs(y(p.value) - y(0.0)),
            class_="bar",
            rx=1.5,
        )
        area = svg.rect(
            x=centre - slot / 2, y=_TOP, width=slot, height=_BOTTOM - _TOP, class_="hit"
        )
        parts.append(svg.mark(axes.describe(p), area, bar))
    parts += _references([reference] if reference else [], y, right)
    return _chart(axes, parts)


def dot_chart(points: list[Point], *, axes: Axes, zero: str) -> str:
    """One line a point with its interval as a whisker; `zero` names the vertical line at 0."""
    left, row = 150.0, 36.0
    bottom = _TOP + 14 + row * len(points)
    values = [v for p in points for v in (p.value, p.low, p.high) if v is not None] + [0.0]
    x_ticks = svg.ticks(min(values), max(values), about=5)
    x = svg.Scale(low=x_ticks[0], high=x_ticks[-1], start=left, end=WIDTH - 62)
    parts = []
    for value, label in zip(x_ticks, axes.tick_labels(x_ticks), strict=True):
        parts.append(svg.line(x1=x(value), y1=_TOP + 10, x2=x(value), y2=bottom, class_="grid"))
        parts.append(svg.text(label, x=x(value), y=bottom + 14, anchor="middle"))
    parts.append(svg.line(x1=x(0), y1=_TOP + 4, x2=x(0), y2=bottom, class_="axis"))
    parts.append(svg.text(zero, x=x(0), y=_TOP - 4, anchor="middle"))
    for index, p in enumerate(points):
        parts += _dot_row(p, axes=axes, x=x, y=_TOP + 14 + row * (index + 0.5), row=row)
    parts.append(svg.text(axes.x_title, x=left, y=bottom + 36))
    return _chart(axes, parts, height=bottom + 48)


def _dot_row(p: Point, *, axes: Axes, x: svg.Scale, y: float, row: float) -> list[str]:
    area = svg.rect(x=0, y=y - row / 2, width=WIDTH, height=row, class_="hit")
    whisker = ""
    if p.low is not None and p.high is not None:
        whisker = svg.line(x1=x(p.low), y1=y, x2=x(p.high), y2=y, class_="whisker")
    dot = svg.element("circle", cx=x(p.value), cy=y, r=5.0, class_="dot")
    shown = svg.text(
        axes.write(p.value) if axes.as_percent else numbers.signed(p.value, axes.digits),
        x=WIDTH - 2,
        y=y,
        anchor="end",
        class_="label",
    )
    name = svg.text(p.name, x=0, y=y, class_="label")
    return [svg.mark(axes.describe(p), area, whisker, dot, name, shown)]


def _grid(y_ticks: list[float], y: svg.Scale, right: float, axes: Axes) -> str:
    parts = []
    for value, label in zip(y_ticks, axes.tick_labels(y_ticks), strict=True):
        kind = "axis" if value == 0 else "grid"
        parts.append(svg.line(x1=_LEFT, y1=y(value), x2=right, y2=y(value), class_=kind))
        parts.append(svg.text(label, x=_LEFT - 8, y=y(value), anchor="end"))
    return "".join(parts)


def _x_labels(points: list[Point], x: svg.Scale, axes: Axes, right: float) -> str:
    every = max(1, -(-len(points) // 8))
    parts = [
        svg.text(f"{p.x:g}", x=x(p.x), y=_BOTTOM + 16, anchor="middle")
        for index, p in enumerate(points)
        if index % every == 0
    ]
    centre = (_LEFT + right) / 2
    parts.append(svg.text(axes.x_title, x=centre, y=_BOTTOM + 38, anchor="middle"))
    return "".join(parts)


def _references(references: list[Reference], y: svg.Scale, right: float) -> list[str]:
    heights = svg.spread([y(r.value) for r in references], gap=_LABEL_GAP)
    parts = []
    for reference, height in zip(references, heights, strict=True):
        at = y(reference.value)
        parts.append(svg.line(x1=_LEFT, y1=at, x2=right, y2=at, class_="ref"))
        parts.append(svg.text(reference.name, x=right + 6, y=height))
    return parts


def _band(points: list[Point], x: svg.Scale, y: svg.Scale) -> str:
    upper = [f"{x(p.x):.1f},{y(p.high or 0.0):.1f}" for p in points]
    lower = [f"{x(p.x):.1f},{y(p.low or 0.0):.1f}" for p in reversed(points)]
    return svg.element("polygon", points=" ".join(upper + lower), class_="band")


def _chart(axes: Axes, parts: list[str], *, height: float = HEIGHT) -> str:
    return svg.element(
        "svg",
        *parts,
        class_="chart",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="group",
        aria_label=axes.label,
    )
