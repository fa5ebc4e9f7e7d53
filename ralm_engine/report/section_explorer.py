"""The explorer's section and the note that says what part of the run it shows."""

from __future__ import annotations

from ralm_engine.report import embed, markup, numbers
from ralm_engine.report.explorer import GAIN_EDGES, Json
from ralm_engine.report.model import ranker_name
from ralm_engine.report.selection import WINDOW_STRIDES, Selection

# Losses of this shade and stronger are dotted too, so that colour is not the only sign.
_DOTTED_SHADE = 3


def explorer_section(data: Json, selection: Selection) -> str:
    """The explorer around `data`; its content is drawn by the page's script."""
    options = "".join(
        f'<option value="{at}">{embed.html_text(ranker_name(ranker))}</option>'
        for at, ranker in enumerate(data["rankers"])
    )
    return embed.fill(
        "explorer.html",
        note=embed.html_text(_note(data, selection)),
        rankers=options,
        legend=_legend(),
        dotted=f"{GAIN_EDGES[_DOTTED_SHADE - 1]:g}",
    )


def absent_explorer(reason: str) -> str:
    """The section where there is nothing to explore."""
    return markup.section("explorer", "Stride explorer", markup.note(reason))


def _note(data: Json, selection: Selection) -> str:
    shown = len(selection.rows)
    if shown == selection.total:
        text = f"All {numbers.count(shown)} strides of the run. "
    else:
        text = (
            f"{numbers.count(shown)} of {numbers.count(selection.total)} strides: "
            f"{selection.windows} windows of {WINDOW_STRIDES}, evenly spread, and the strides with "
            "the biggest gains, losses and disagreements with the oracle. "
        )
    text += "Colour shows what the chosen passage did to each token. Choose a stride to see why."
    without = sum(passage[3] is None for passage in data["passages"])
    if without:
        text += f" {numbers.count(without)} of {numbers.count(len(data['passages']))} passages "
        text += f"have no text here: {data['missing_text']}"
    return text


def _legend() -> str:
    edges = [f"{edge:g}" for edge in GAIN_EDGES]
    losses = [(f"m{n}", f"\N{MINUS SIGN}{edges[n - 1]}") for n in range(len(edges), 0, -1)]
    gains = [(f"p{n}", f"+{edges[n - 1]}") for n in range(1, len(edges) + 1)]
    return "".join(
        f'<li class="{kind}">{label}</li>' for kind, label in [*losses, ("g0", "0"), *gains]
    )
