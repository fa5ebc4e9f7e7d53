"""What commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_IN_A_PIPE = 110
_RANKERS = {
    "none": "no retrieval",
    "first": "first passage",
    "random": "random passage",
    "logprob": "zero-shot reranking",
    "oracle": "oracle",
}


def print_json(value: object) -> None:
    """Prints one JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def console() -> Console:
    """A console on stdout; plain and wide enough for every table where that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE, highlight=False)


def table(title: str, columns: Sequence[str], *, left: int = 1) -> Table:
    """An empty table whose columns after the first `left` ones hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, title_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right")
    return made


def print_perplexity(summary: Mapping[str, Any]) -> None:
    """Prints perplexity by ranker and denominator, and the oracle curve.

    Args:
        summary: what summary.json holds.
    """
    perplexity: Mapping[str, Mapping[str, float | None]] = summary["perplexity"]
    counts: Mapping[str, int] = summary["counts"]
    made = table("Perplexity", ["", "token", "word", "space", "byte"])
    best = _best(perplexity)
    for ranker, values in perplexity.items():
        cells = [_figure(values.get(column)) for column in ("token", "word", "space", "byte")]
        style = "bold" if ranker == best else ""
        made.add_row(_RANKERS.get(ranker, ranker), *cells, style=style)
    made.add_section()
    columns = ("tokens", "words", "spaces", "bytes")
    made.add_row("divided by", *(f"{counts[column]:,}" for column in columns), style="dim")
    out = console()
    out.print(made)
    curve = [_figure(value) for value in _oracle_values(summary)]
    if curve:
        out.print(f"Oracle over the first 1..{len(curve)} passages, per token: {' '.join(curve)}\n")


def _best(perplexity: Mapping[str, Mapping[str, float | None]]) -> str:
    """The best ranker that sees no target, so not the oracle."""
    real = {name: row.get("token") for name, row in perplexity.items() if name != "oracle"}
    known = {name: value for name, value in real.items() if value is not None}
    return min(known, key=lambda name: known[name]) if known else ""


def _oracle_values(summary: Mapping[str, Any]) -> list[float | None]:
    return list(summary.get("oracle_at") or [])


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 10 else f"{value:.3f}"
