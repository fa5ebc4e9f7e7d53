"""This run beside another one of the same text, such as the exact run beside one with slack."""

from __future__ import annotations

from ralm_engine.report import markup, numbers
from ralm_engine.report.model import RunFigures, ranker_name
from ralm_engine.report.section_cost import Actual


def baseline_section(
    label: str, ours: RunFigures, theirs: RunFigures, costs: tuple[Actual | None, Actual | None]
) -> str:
    """Token perplexity per ranker in both runs, and what both cost.

    Args:
        label: what the other run is called.
        ours: figures of this run.
        theirs: figures of the other run.
        costs: totals of this and the other run.
    """
    rows = []
    for line in ours.rankers:
        mine, other = line.perplexity["token"].value, theirs.token_perplexity(line.ranker)
        if mine is None or other is None:
            continue
        change = numbers.signed(100 * (mine / other - 1), 3) + "%"
        rows.append(
            (ranker_name(line.ranker), numbers.fixed(mine, 4), numbers.fixed(other, 4), change)
        )
    text = f"The same figures of the run {label}."
    if ours.counts != theirs.counts:
        text += " The two runs scored different text: their perplexities do not compare."
    table = markup.table(("Token perplexity", "this run", "other run", "change"), rows)
    return markup.section(
        "baseline", "Against another run", markup.note(text), table, _cost(*costs)
    )


def _cost(ours: Actual | None, theirs: Actual | None) -> str:
    if ours is None or theirs is None:
        return ""
    pairs = [
        ("Tokens forwarded", ours.tokens_forwarded, theirs.tokens_forwarded, numbers.count),
        ("Scoring time", ours.score_seconds, theirs.score_seconds, numbers.duration),
    ]
    rows = [
        (name, write(mine), write(other), f"{mine / other:.2f} x" if other else "")
        for name, mine, other, write in pairs
    ]
    return markup.table(("Cost", "this run", "other run", "ratio"), rows)
