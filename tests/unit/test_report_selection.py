"""Which strides the explorer holds: bounded, spread, with the extremes, without repeats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.report.selection import (
    WINDOW_STRIDES,
    passage_order,
    select_strides,
    stride_limit,
)


def gains_of(total: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.normal(0, 1, total)
    return {"first": first, "oracle": first + rng.exponential(1.0, total)}


@given(total=st.integers(0, 3000), limit=st.integers(1, 400), seed=st.integers(0, 5))
def test_never_more_than_the_limit_never_twice_never_outside(total, limit, seed):
    found = select_strides(gains_of(total, seed), total=total, limit=limit)
    assert len(found.rows) <= max(limit, 0)
    assert np.all(np.diff(found.rows) > 0)
    if total:
        assert found.rows[0] >= 0
        assert found.rows[-1] < total
    assert (len(found.rows) == total) or total > limit


def test_a_small_run_is_shown_whole():
    found = select_strides(gains_of(50), total=50, limit=50)
    assert found.rows.tolist() == list(range(50))
    assert found.windows == 0


def test_the_biggest_gain_loss_and_regret_are_always_there():
    """Fails when an extreme is lost between the windows."""
    gains = gains_of(20_000)
    gains["first"][12_345] = 99.0
    gains["first"][777] = -99.0
    gains["oracle"][15_001] = gains["first"][15_001] + 99.0
    rows = select_strides(gains, total=20_000, limit=500).rows
    assert {12_345, 777, 15_001} <= set(rows.tolist())


def test_windows_are_whole_and_reach_from_the_first_to_the_last_stride():
    gains = {"first": np.full(10_000, np.nan)}
    found = select_strides(gains, total=10_000, limit=400)
    assert found.windows == 10
    runs = np.split(found.rows, np.flatnonzero(np.diff(found.rows) > 1) + 1)
    assert [len(run) for run in runs] == [WINDOW_STRIDES] * 10
    assert found.rows[0] == 0
    assert found.rows[-1] == 9_999


@pytest.mark.parametrize(
    ("candidates", "targets", "expected"), [(16, 4, 2000), (64, 64, None), (0, 1, 2000)]
)
def test_wide_strides_get_fewer_places(candidates, targets, expected):
    """Fails when 64 candidates of 64 targets could make a file of hundreds of megabytes."""
    found = stride_limit(
        wanted=2000, candidates=candidates, targets=targets, budget_bytes=2_800_000
    )
    if expected is None:
        assert WINDOW_STRIDES <= found < 200
    else:
        assert found == expected


def test_chosen_passages_come_before_better_ranked_ones_and_none_twice():
    order = passage_order([[1, -1], [2, 0]], [[10, 11], [11, 12, 13]])
    assert order == [11, 13, 10, 12]
