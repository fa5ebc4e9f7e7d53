"""What the report says about a run, as plain figures; filled by `summary`, read by the sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DENOMINATORS = ("token", "word", "space", "byte")
"""What a summed NLL can be divided by before it is exponentiated."""

RANKER_NAMES = {
    "none": "No retrieval",
    "first": "First passage",
    "random": "Random passage",
    "logprob": "Zero-shot reranking",
    "oracle": "Oracle",
}
_DESCRIPTIONS = {
    "none": "the language model alone",
    "first": "rank 0 of the retriever",
    "random": "one of the retrieved passages, seeded",
    "logprob": "best probability of the last prefix tokens",
    "oracle": "best probability of the target itself: a bound, not a method",
}


_SHORT_NAMES = {"none": "no retrieval", "first": "first passage", "logprob": "zero-shot"}


def short_name(ranker: str) -> str:
    """The name beside a line of a chart."""
    return _SHORT_NAMES.get(ranker, ranker_name(ranker))


def ranker_name(ranker: str) -> str:
    """The name people read."""
    return RANKER_NAMES.get(ranker, ranker.removeprefix("ranker_"))


def ranker_description(ranker: str) -> str:
    """What the ranker does, in a few words."""
    return _DESCRIPTIONS.get(ranker, "an extra ranker's score")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its 95% interval (paired bootstrap over strides), where there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerFigures:
    """One line of the perplexity table.

    Attributes:
        ranker: its key in the tables.
        perplexity: per denominator.
        divisor: what each perplexity is divided by; 0 where that is unknown.
        bits_per_byte: log2 of the byte perplexity.
        against_none: token perplexity minus that of no retrieval, paired.
        against_first: token perplexity minus that of the first passage, paired.
        agreement: share of the strides with candidates where it chooses as the oracle does.
        gap_closed: share of the gap between no retrieval and the oracle that it closes.
    """

    ranker: str
    perplexity: Mapping[str, Estimate]
    divisor: Mapping[str, int]
    bits_per_byte: Estimate
    against_none: Estimate | None = None
    against_first: Estimate | None = None
    agreement: float | None = None
    gap_closed: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gain of the first passage in nats per token, over strides with a property in one range."""

    low: float
    high: float
    gain: float
    strides: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Token perplexity of one stream per ranker."""

    stream_id: str
    tokens: int
    perplexity: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """All analyses of one run.

    Attributes:
        rankers: in the order of the table.
        counts: what each denominator counts over the whole text (token: the scored ones); None
            until the text is scored to its end.
        oracle_at: token perplexity of the oracle at depth 1..k.
        oracle_choice: strides in which the oracle takes rank 0..k-1.
        oracle_behind: strides in which even the oracle's passage loses to no retrieval.
        strides_with_candidates: strides with a candidate that may be chosen.
        lookback: token perplexity of zero-shot reranking per number of ranking tokens.
        buckets: per property of a stride, the gain in each of its ranges.
        facts: counted events (strides, strides without hits, duplicates, nonfinite values, ...).
        streams: figures of each stream.
        shards_done, shards_total: committed and planned; total is None where nobody said.
    """

    rankers: Sequence[RankerFigures]
    counts: Mapping[str, int | None]
    oracle_at: Sequence[tuple[int, Estimate]]
    oracle_choice: Sequence[int]
    oracle_behind: int
    strides_with_candidates: int
    lookback: Sequence[tuple[int, Estimate]]
    buckets: Mapping[str, Sequence[Bucket]]
    facts: Mapping[str, int]
    streams: Sequence[StreamFigures]
    shards_done: int
    shards_total: int | None

    def of(self, ranker: str) -> RankerFigures | None:
        """The line of one ranker."""
        return next((line for line in self.rankers if line.ranker == ranker), None)

    def token_perplexity(self, ranker: str) -> float | None:
        """Its token perplexity; None where there is no such ranker or no scored token."""
        line = self.of(ranker)
        return line.perplexity["token"].value if line else None
