"""Rankers as folds over the candidate table: each picks one candidate per stride.

Every ranker gives a cost to every candidate; the lowest one wins, the lower rank where costs are
equal, the baseline where nothing can be chosen. `reference` holds the slow twin.

Legend: S strides, C candidate lines, K ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.ralm.analysis_columns import CandidateColumns, Floats, Ints, Mask, StrideColumns

BASELINE = -1
"""The choice of a stride that is scored without a passage."""

BASE_RANKERS = ("none", "first", "random", "logprob", "oracle")
LOOKBACKS = (4, 8, 16, 32)
"""Lengths of the lookback sweep, as far as they were stored."""

_INFINITE = np.float32(np.inf)
# Multipliers and shifts of the splitmix64 generator: every bit of the input moves half the output.
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_GOLDEN = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1


def lookback_ranker(length: int) -> str:
    """Name of the zero-shot ranker that predicts the last `length` prefix tokens only."""
    return f"logprob@{length}"


@dataclass(frozen=True, slots=True)
class ShardFold:
    """One shard, ready to be ranked.

    Attributes:
        strides: its strides.
        candidates: its candidates.
        usable_SK: whether a rank holds a candidate that may be chosen.
    """

    strides: StrideColumns
    candidates: CandidateColumns
    usable_SK: Mask

    @classmethod
    def of(cls, strides: pa.Table, candidates: pa.Table) -> ShardFold:
        """Reads both tables of a shard.

        Raises:
            RunError: they contradict each other.
        """
        columns = CandidateColumns.of(strides, candidates)
        usable_SK = columns.spread(columns.usable_C, fill=np.False_)
        return cls(StrideColumns.of(strides), columns, usable_SK)

    def choose(self, rankers: Iterable[str], *, seed: int) -> dict[str, Ints]:
        """The rank that each ranker chooses per stride, or BASELINE. Each [S].

        Args:
            rankers: `none`, `first`, `random`, `logprob`, `logprob@N`, `oracle`, `oracle@N`, or
                `ranker_<name>` of a column.
            seed: for `random`; the choice depends on it, the stream id and the stride only.

        Raises:
            InputError: an unknown ranker.
        """
        names = list(rankers)
        limits = [_parameter(name) for name in names if name.startswith("logprob")]
        sums = self.candidates.rank_nll.last_sums(list(limits))
        tails = dict(zip(limits, sums, strict=True))
        return {name: self._choose(name, seed, tails) for name in names}

    def _choose(self, ranker: str, seed: int, tails: dict[int | None, Floats]) -> Ints:
        usable_SK = self.usable_SK
        columns = self.candidates
        if ranker == "none":
            return np.full(usable_SK.shape[0], BASELINE, dtype=np.int64)
        if ranker == "random":
            return _cheapest(usable_SK, self._random_costs(seed))
        if ranker == "first":
            cost_C = columns.rank_C.astype(np.float32)
        elif ranker.startswith("logprob"):
            cost_C = np.where(columns.has_rank_nll_C, tails[_parameter(ranker)], _INFINITE)
        elif ranker.startswith("oracle"):
            depth = _parameter(ranker)
            beyond_C = columns.rank_C >= (columns.rank_C.size if depth is None else depth)
            cost_C = np.where(beyond_C, _INFINITE, columns.target_nll_C)
        elif ranker in columns.rankers:
            score_C = columns.rankers[ranker]
            cost_C = np.where(np.isnan(score_C), _INFINITE, -score_C)
        else:
            raise InputError(
                f'unknown ranker "{ranker}"',
                hint=f"there are {', '.join([*BASE_RANKERS, *columns.rankers])}",
            )
        return _cheapest(usable_SK, columns.spread(cost_C, fill=_INFINITE))

    def _random_costs(self, seed: int) -> npt.NDArray[np.float64]:
        """Independent uniform numbers for every stride and rank, the same in any shard. [S, K]."""
        strides = self.strides
        # No numpy Generator: its numbers depend on how many were drawn before, that is on shards.
        starts = [_stream_seed(seed, name) for name in strides.stream_names]
        start_S = np.array(starts, dtype=np.uint64)[strides.stream_S]
        number_S = strides.stride_S.astype(np.uint64) * np.uint64(_GOLDEN)
        rank_K = np.arange(1, self.usable_SK.shape[1] + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        return _mixed(_mixed(start_S + number_S)[:, None] + rank_K[None, :]) / 2.0**64

    def nll(self, choice_S: Ints) -> tuple[Floats, Ints]:
        """NLL sum and number of finite targets of each stride under a choice. Each [S]."""
        if not self.usable_SK.shape[1]:
            return self._baseline()
        chosen = choice_S != BASELINE
        line_S = self.candidates.line_SK[np.arange(choice_S.size), np.maximum(choice_S, 0)]
        nll_S, count_S = self._baseline()
        nll_S[chosen] = self.candidates.target_nll_C[line_S[chosen]]
        count_S[chosen] = self.strides.length_S[chosen]
        return nll_S, count_S

    def oracle_nll(self) -> Floats:
        """NLL sum of each stride under the oracle at depth 1..K. [S, K]."""
        cost_SK = self.candidates.spread(self.candidates.target_nll_C, fill=_INFINITE)
        best_SK = np.minimum.accumulate(np.where(self.usable_SK, cost_SK, _INFINITE), axis=1)
        return np.where(np.isinf(best_SK), self.strides.baseline_nll_S[:, None], best_SK)

    def _baseline(self) -> tuple[Floats, Ints]:
        strides = self.strides
        return strides.baseline_nll_S.copy(), strides.length_S - strides.baseline_bad_S


def _parameter(ranker: str) -> int | None:
    _, _, number = ranker.partition("@")
    return int(number) if number else None


def _cheapest(usable_SK: Mask, cost_SK: npt.NDArray[np.floating]) -> Ints:
    if not usable_SK.shape[1]:
        return np.full(usable_SK.shape[0], BASELINE, dtype=np.int64)
    cost_SK = np.where(usable_SK, cost_SK, np.inf)
    # argmin returns the first of equal costs: the lower rank.
    best_S = np.argmin(cost_SK, axis=1)
    found_S = cost_SK[np.arange(best_S.size), best_S] < np.inf
    return np.where(found_S, best_S, BASELINE)


def _stream_seed(seed: int, stream_id: str) -> int:
    key = f"{seed}\0{stream_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "little")


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in _MIX:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))
