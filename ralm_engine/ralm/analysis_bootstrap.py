"""Paired bootstrap: every figure of a resample is computed from the same weights.

A unit is a stride, or a stride-long piece of a warm-up pass (one line of up to max_length tokens,
taken whole, would outweigh all strides of a short stream).

Legend: U units, C columns, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ralm_engine.ralm.analysis_columns import Floats, Ints
from ralm_engine.ralm.analysis_read import Outcome, RunFold
from ralm_engine.schema import WARMUP_STRIDE

Doubles = npt.NDArray[np.float64]

# Below this many units the weights are drawn exactly (multinomial); above it they are independent
# Poisson(1) numbers, which changes an interval by a part in the square root of the units.
_EXACT_UNITS = 2048
# Above this many, neighbours are summed to blocks first, which bounds the cost: 1 M units took
# 16.6 s one by one and 0.8 s so, on 2 shared AVX2 cores. The standard error from n blocks is itself
# uncertain by 1 / sqrt(2 n) = 0.3%, which 1,000 resamples with their 2.2% cannot show.
_MAX_UNITS = 1 << 16
# Weights of one block of 1,000 resamples: 16 MB in float32.
_BLOCK_UNITS = 4096
_POISSON_STEPS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What is resampled.

    Attributes:
        nll: NLL sums [U] of each column.
        tokens: what each column's sums are over [U].
        stream_U: stream of each unit.
    """

    nll: Sequence[Floats | Doubles]
    tokens: Sequence[Ints]
    stream_U: Ints

    @classmethod
    def of(cls, fold: RunFold, columns: Sequence[Outcome]) -> Units:
        """Takes the strides of a run, and its warm-up passes cut to pieces of a stride."""
        real = fold.stride_S != WARMUP_STRIDE
        size = max(int(fold.length_S[real].max(initial=1)), 1)
        pieces, owner = fold.warmup.baseline.pieces(size)
        warm_nll, warm_tokens = pieces.sums(), pieces.length - pieces.num_bad()
        return cls(
            nll=[np.append(column.nll[real], warm_nll) for column in columns],
            tokens=[np.append(column.tokens[real], warm_tokens) for column in columns],
            stream_U=np.append(fold.stream_S[real], fold.warmup.stream[owner]),
        )

    def merged(self) -> Units:
        """At most _MAX_UNITS units: each the sum of as many neighbours as that takes."""
        size = -(-self.stream_U.size // _MAX_UNITS)
        if size <= 1:
            return self
        begins = np.arange(0, self.stream_U.size, size)
        return Units(
            nll=[np.add.reduceat(column.astype(np.float64), begins) for column in self.nll],
            tokens=[np.add.reduceat(column, begins) for column in self.tokens],
            stream_U=self.stream_U[begins],
        )

    def rows(self, chosen: Ints) -> Units:
        """The chosen units."""
        return Units(
            nll=[column[chosen] for column in self.nll],
            tokens=[column[chosen] for column in self.tokens],
            stream_U=self.stream_U[chosen],
        )


def resampled_means(units: Units, *, resamples: int, rng: np.random.Generator) -> Doubles:
    """Mean NLL per token of each column in each resample. Shape [R, C].

    NaN where a resample holds no token. Cost: R weights for each unit (or block of units, see
    `_MAX_UNITS`) and a matrix product with C columns.
    """
    units = units.merged()
    num_columns = len(units.nll)
    distinct, of_column = _distinct(units.tokens)
    total_RC = np.zeros((resamples, num_columns + len(distinct)))
    for begin, weight_RU in _weights(units.stream_U.size, resamples, rng):
        block = slice(begin, begin + weight_RU.shape[1])
        values = [column[block].astype(np.float32) for column in [*units.nll, *distinct]]
        total_RC += weight_RU @ np.stack(values, axis=1)
    tokens_RC = total_RC[:, num_columns:][:, of_column]
    means_RC = np.full((resamples, num_columns), np.nan)
    np.divide(total_RC[:, :num_columns], tokens_RC, out=means_RC, where=tokens_RC > 0)
    return means_RC


def interval(samples_R: Doubles) -> tuple[float | None, float | None]:
    """The middle 95% of the resampled figures; None without one."""
    finite = samples_R[np.isfinite(samples_R)]
    if not finite.size:
        return None, None
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(low), float(high)


def _distinct(columns: Sequence[Ints]) -> tuple[list[Ints], list[int]]:
    """The different columns, and which of them each one is: nearly always all are one."""
    found: list[Ints] = []
    places = []
    for column in columns:
        same = [place for place, other in enumerate(found) if np.array_equal(column, other)]
        if not same:
            found.append(column)
        places.append(same[0] if same else len(found) - 1)
    return found, places


def _weights(
    num_units: int, resamples: int, rng: np.random.Generator
) -> Iterator[tuple[int, Floats]]:
    """Yields (first unit, how often each unit of a block is drawn [R, units])."""
    if num_units == 0:
        return
    if num_units <= _EXACT_UNITS:
        chances = np.full(num_units, 1 / num_units)
        yield 0, rng.multinomial(num_units, chances, size=resamples).astype(np.float32)
        return
    table = _poisson_table()
    for begin in range(0, num_units, _BLOCK_UNITS):
        shape = (resamples, min(_BLOCK_UNITS, num_units - begin))
        # Four 16-bit draws out of each 64-bit number: four times fewer numbers to generate.
        words = rng.integers(0, 2**64, size=-(-shape[0] * shape[1] // 4), dtype=np.uint64)
        yield begin, table[words.view(np.uint16)[: shape[0] * shape[1]]].reshape(shape)


def _poisson_table() -> Floats:
    """The Poisson(1) number of each of 65,536 equally likely draws."""
    chance = np.exp(-1.0) / np.cumprod([1.0, *range(1, 12)])
    middles = (np.arange(_POISSON_STEPS) + 0.5) / _POISSON_STEPS
    return np.searchsorted(np.cumsum(chance), middles).astype(np.float32)
