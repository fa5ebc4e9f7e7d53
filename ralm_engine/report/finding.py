"""The finding of a run in words, with its interval: what a reader should take away first."""

from __future__ import annotations

from ralm_engine.report import numbers
from ralm_engine.report.model import Estimate, RankerFigures, RunFigures


def headline(figures: RunFigures) -> str:
    """One sentence: what the first passage does to token perplexity, and how sure that is."""
    none, first = figures.token_perplexity("none"), figures.of("first")
    if none is None:
        return "No token was scored, so there is no perplexity to report."
    if first is None or first.perplexity["token"].value is None:
        return f"Without retrieval the token perplexity is {numbers.fixed(none)}."
    after = first.perplexity["token"].value
    return (
        f"{_subject(first.against_none)} token perplexity: {numbers.fixed(none)} without "
        f"retrieval, {numbers.fixed(after)} with it{_difference(first.against_none)}."
    )


def _subject(difference: Estimate | None) -> str:
    passage = "The first retrieved passage"
    if difference is None or difference.value is None or not difference.excludes_zero:
        return f"{passage} makes no clear difference to"
    return f"{passage} {'lowers' if difference.value < 0 else 'raises'}"


def _difference(difference: Estimate | None) -> str:
    if difference is None or difference.value is None:
        return ""
    text = numbers.signed(difference.value)
    bounds = numbers.interval(difference.low, difference.high, sign=True)
    return f" ({text}; 95% interval {bounds})" if bounds else f" ({text})"


def details(figures: RunFigures) -> list[str]:
    """Further sentences: reranking, and what a perfect choice would reach."""
    found = []
    reranked = figures.of("logprob")
    if reranked is not None and reranked.perplexity["token"].value is not None:
        found.append(_reranking(reranked))
    oracle = figures.token_perplexity("oracle")
    if oracle is not None and figures.oracle_at:
        depth = figures.oracle_at[-1][0]
        found.append(
            f"Always choosing the best of {depth} passages, which needs the target itself, would "
            f"give {numbers.fixed(oracle)}."
        )
    return found


def _reranking(line: RankerFigures) -> str:
    value = numbers.fixed(line.perplexity["token"].value)
    gap = line.against_first
    if gap is None or gap.value is None:
        return f"Zero-shot reranking reaches {value}."
    bounds = numbers.interval(gap.low, gap.high, sign=True)
    sure = f"; 95% interval {bounds}" if bounds else ""
    verdict = "" if gap.excludes_zero else ", no clear difference"
    return (
        f"Zero-shot reranking reaches {value}, {numbers.signed(gap.value)} against the first "
        f"passage{sure}{verdict}."
    )
