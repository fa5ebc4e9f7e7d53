"""Small vocabulary for hand-written SVG: escaped elements, linear scales, round ticks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps the interval [low, high] of the data to [start, end] of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of `value`; the middle where the interval is a single value."""
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def element(name: str, *children: str, **attributes: object) -> str:
    """One element. Children are markup already; attribute values are escaped here.

    Attribute names follow Python: `class_` becomes `class`, other underscores become hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(children)}</{name}>"


def text(content: str, *, x: float, y: float, anchor: str = "start", class_: str = "") -> str:
    """A text label with its anchor at (x, y)."""
    return element(
        "text", escape(content), x=x, y=y, text_anchor=anchor, class_=class_ or None, dy="0.32em"
    )


def line(*, x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(*, x: float, y: float, width: float, height: float, class_: str, rx: float = 0) -> str:
    """A rectangle; a negative size is drawn as 0."""
    return element(
        "rect", x=x, y=y, width=max(width, 0), height=max(height, 0), rx=rx or None, class_=class_
    )


def mark(tip: str, *children: str) -> str:
    """A group that shows `tip` on hover and focus and speaks it to a screen reader."""
    return element("g", *children, role="img", aria_label=tip, data_tip=tip)


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers that cover [low, high]; at least two, the outer ones enclose the interval."""
    span = high - low
    if span <= 0:
        span = abs(high) or 1.0
        low, high = low - span / 2, high + span / 2
    step = 10.0 ** math.floor(math.log10(span / about))
    for factor in (1, 2, 2.5, 5, 10):
        if span / (step * factor) <= about:
            step *= factor
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def tick_labels(values: list[float]) -> list[str]:
    """The ticks with as many decimals as their step needs."""
    step = abs(values[1] - values[0]) if len(values) > 1 else 1.0
    digits = next((d for d in range(7) if abs(round(step, d) - step) < 1e-9 * max(step, 1)), 7)
    return [f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}") for value in values]


def spread(positions: list[float], *, gap: float) -> list[float]:
    """Moves labels apart vertically so that neighbours are at least `gap` apart; order is kept."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    placed = list(positions)
    for before, after in itertools.pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    return placed


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
