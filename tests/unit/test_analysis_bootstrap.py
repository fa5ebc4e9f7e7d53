"""The bootstrap gives the intervals of theory, paired, for small, large and empty runs."""

from __future__ import annotations

import numpy as np
import pytest

from ralm_engine.ralm.analysis import analyze_run
from ralm_engine.ralm.analysis_bootstrap import Units, interval, resampled_means


def units(nll, tokens=4):
    count = nll[0].size
    return Units(
        nll=[column.astype(np.float32) for column in nll],
        tokens=[np.full(count, tokens)] * len(nll),
        stream_U=np.zeros(count, dtype=np.int64),
    )


@pytest.mark.parametrize("count", [100, 2_000, 5_000, 200_000])
def test_the_spread_is_the_standard_error_of_the_mean(count):
    """Fails if weights are biased, or too wide or narrow, in the exact, Poisson or merged regime.

    The standard deviation of 2,000 resamples is known to 1 / sqrt(4,000) = 1.6%: 5 sigma is 8%;
    at 100 units the estimate from one sample adds 1 / sqrt(200) = 7%, which the sample's own
    deviation takes out.
    """
    values = np.random.default_rng(1).exponential(8.0, count)
    means = resampled_means(units([values]), resamples=2000, rng=np.random.default_rng(0))[:, 0]
    error = values.std() / np.sqrt(count) / 4
    assert means.std() == pytest.approx(error, rel=0.08)
    # The mean of the resamples is off by the ratio's bias, of the order of 1 / count, and noise.
    assert means.mean() == pytest.approx(values.mean() / 4, abs=5 * error / np.sqrt(2000) + 1e-4)


def test_paired_columns_move_together():
    """Fails if rankers are resampled with different weights: a constant gain has no spread."""
    values = np.random.default_rng(2).exponential(8.0, 3_000)
    means = resampled_means(
        units([values, values - 1.0]), resamples=200, rng=np.random.default_rng(0)
    )
    # 4 tokens a unit: 1 nat a unit is 0.25 a token; float32 sums of 24,000 nats hold 1e-5 of them.
    assert means[:, 0] - means[:, 1] == pytest.approx(np.full(200, 0.25), abs=1e-4)


def test_columns_with_their_own_token_counts_are_divided_by_those():
    """Fails if a ranker with fewer finite tokens is divided by another one's."""
    nll = [np.full(50, 8.0, np.float32), np.full(50, 6.0, np.float32)]
    own = Units(
        nll=nll, tokens=[np.full(50, 4), np.full(50, 3)], stream_U=np.zeros(50, dtype=np.int64)
    )
    means = resampled_means(own, resamples=10, rng=np.random.default_rng(0))
    assert means == pytest.approx(np.full((10, 2), 2.0))


def test_no_unit_and_no_token_give_no_interval():
    """Fails if nothing to resample gives NaN, zero or a warning."""
    nothing = units([np.empty(0)])
    means = resampled_means(nothing, resamples=5, rng=np.random.default_rng(0))
    assert interval(means[:, 0]) == (None, None)
    unscored = units([np.zeros(10)], tokens=0)
    means = resampled_means(unscored, resamples=5, rng=np.random.default_rng(0))
    assert interval(means[:, 0]) == (None, None)


def test_one_seed_gives_one_interval_that_holds_the_value(tmp_path, synthetic, write_run):
    """Fails if intervals change from run to run, ignore the seed, or miss their own value."""
    path = write_run(tmp_path / "run", synthetic(streams={"a": 300, "b": 200}))
    one, two, other = (analyze_run(path, seed=seed)["interval"] for seed in (1, 1, 2))
    assert one == two
    assert one["none"] != other["none"]
    summary = analyze_run(path, seed=1)
    for ranker, row in summary["interval"].items():
        for key, (low, high) in row.items():
            assert low < summary["perplexity"][ranker][key] < high
    difference = summary["difference"]["first"]["oracle"]["token"]
    assert difference["low"] < difference["value"] < difference["high"] < 0


def test_no_resamples_means_no_intervals(tmp_path, synthetic, write_run):
    """Fails if `resamples = 0` crashes or invents intervals."""
    summary = analyze_run(write_run(tmp_path / "run", synthetic()), resamples=0)
    assert summary["interval"]["none"]["token"] == [None, None]
    assert summary["difference"]["none"]["first"]["token"]["low"] is None


def test_a_long_warmup_counts_like_its_tokens(tmp_path, synthetic, write_run):
    """Fails if one warm-up line is resampled as one unit: the interval would be far too wide."""
    source = synthetic(streams={"a": 1001}, warmup=1001)
    summary = analyze_run(write_run(tmp_path / "run", source))
    values = np.concatenate([s["baseline_nll"] for s in source.strides])
    error = values.std() / np.sqrt(values.size)
    low, high = np.log(summary["interval"]["none"]["token"])
    assert (high - low) / (2 * 1.96) == pytest.approx(error, rel=0.15)
