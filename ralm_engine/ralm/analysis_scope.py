"""Figures of one scope, the whole run or one stream, each with its paired 95% interval.

Legend: R resamples, C columns (rankers, lookbacks, depths of the oracle).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ralm_engine.ralm.analysis_bootstrap import Doubles, Units, interval, resampled_means
from ralm_engine.ralm.analysis_read import Outcome

DENOMINATORS = ("token", "word", "space", "byte")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; None where there is nothing to divide by, never NaN.

    Attributes:
        value: the figure.
        low: lower end of its 95% interval.
        high: upper end.
        count: what it is divided by.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    count: int = 0

    def as_dict(self) -> dict[str, float | None]:
        """Value and interval as plain JSON values."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Sums over a scope and their resamples.

    Attributes:
        names: name of each column.
        nll_C: NLL sum, float64 over the float32 sums of strides.
        tokens_C: finite targets.
        counts: words, spaces and bytes of the text, by denominator; None where unknown.
        means_RC: resampled mean NLL per token; None without intervals.
    """

    names: Sequence[str]
    nll_C: Sequence[float]
    tokens_C: Sequence[int]
    counts: Mapping[str, int | None]
    means_RC: Doubles | None = None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Outcome],
        *,
        counts: Mapping[str, int | None],
        units: Units | None,
        resamples: int,
        rng: np.random.Generator,
    ) -> Scope:
        """Sums all strides of the columns; `units` are what is resampled, None for nothing."""
        means = None
        if units is not None and resamples:
            means = resampled_means(units, resamples=resamples, rng=rng)
        return cls(
            names=list(columns),
            nll_C=[float(outcome.nll.sum(dtype=np.float64)) for outcome in columns.values()],
            tokens_C=[int(outcome.tokens.sum()) for outcome in columns.values()],
            counts=counts,
            means_RC=means,
        )

    def perplexity(self, name: str, denominator: str) -> Figure:
        """exp(NLL sum / count); the interval treats words per token as fixed."""
        place = self.names.index(name)
        count = self._count(place, denominator)
        if not count:
            return Figure(None)
        scale = self.tokens_C[place] / count
        low, high = self._interval(place)
        return Figure(_exp(self.nll_C[place] / count), _exp(low, scale), _exp(high, scale), count)

    def bits_per_byte(self, name: str) -> Figure:
        """NLL sum in bits / bytes."""
        place = self.names.index(name)
        count = self._count(place, "byte")
        if not count:
            return Figure(None)
        low, high = self._interval(place)
        scale = self.tokens_C[place] / count / math.log(2)
        return Figure(
            self.nll_C[place] / count / math.log(2), _times(low, scale), _times(high, scale), count
        )

    def difference(self, name: str, other: str, denominator: str) -> Figure:
        """Perplexity of one ranker minus that of another, from the same resamples."""
        one, two = self.perplexity(name, denominator), self.perplexity(other, denominator)
        if one.value is None or two.value is None:
            return Figure(None)
        low, high = None, None
        if self.means_RC is not None:
            low, high = interval(
                self._samples(name, denominator) - self._samples(other, denominator)
            )
        return Figure(one.value - two.value, low, high, one.count)

    def gap_closed(self, name: str, start: str) -> Figure:
        """Share of the NLL between `start` and the oracle that a ranker gains."""
        mean = {key: self.mean_nll(key) for key in (name, start, "oracle")}
        if any(value is None for value in mean.values()):
            return Figure(None)
        begin, here, end = (mean[key] or 0.0 for key in (start, name, "oracle"))
        if begin <= end:
            return Figure(None)
        low, high = None, None
        if self.means_RC is not None:
            places = (self.names.index(key) for key in (start, name, "oracle"))
            first, ranker, oracle = (self.means_RC[:, place] for place in places)
            gap = first - oracle
            share = np.full(gap.size, np.nan)
            np.divide(first - ranker, gap, out=share, where=gap > 0)
            low, high = interval(share)
        count = self.tokens_C[self.names.index(name)]
        return Figure((begin - here) / (begin - end), low, high, count)

    def mean_nll(self, name: str) -> float | None:
        """NLL per finite target."""
        place = self.names.index(name)
        tokens = self.tokens_C[place]
        return self.nll_C[place] / tokens if tokens else None

    def _count(self, place: int, denominator: str) -> int:
        tokens = self.tokens_C[place]
        if denominator == "token" or not tokens:
            return tokens
        return self.counts.get(denominator) or 0

    def _interval(self, place: int) -> tuple[float | None, float | None]:
        return (None, None) if self.means_RC is None else interval(self.means_RC[:, place])

    def _samples(self, name: str, denominator: str) -> Doubles:
        assert self.means_RC is not None
        place = self.names.index(name)
        scale = self.tokens_C[place] / self._count(place, denominator)
        with np.errstate(over="ignore"):
            return np.exp(self.means_RC[:, place] * scale)


def _exp(mean: float | None, scale: float = 1.0) -> float | None:
    """The perplexity of a mean NLL; None where float64 has no number for it."""
    if mean is None:
        return None
    try:
        return math.exp(mean * scale)
    except OverflowError:
        return None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
