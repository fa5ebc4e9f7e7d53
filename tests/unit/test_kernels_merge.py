"""The log-sum-exp merge: softmax over a union from softmax over its parts."""

from __future__ import annotations

import pytest
import torch

from ralm_kernels import merge_into, merge_lse


def _attend(scores, values):
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(3)
    scores = 4.0 * torch.randn(5, 7, 12, generator=generator, dtype=torch.float64)
    values = torch.randn(5, 12, 3, generator=generator, dtype=torch.float64)
    whole = _attend(scores, values)
    left = _attend(scores[..., :4], values[:, :4])
    right = _attend(scores[..., 4:], values[:, 4:])
    return whole, left, right


@pytest.mark.parametrize("swap", [False, True])
def test_parts_make_the_whole_in_either_order(parts, swap):
    """Fails when the weights of the two sides are wrong or swapped."""
    whole, left, right = parts
    out, lse = merge_lse(*right, *left) if swap else merge_lse(*left, *right)
    torch.testing.assert_close(out, whole[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse, whole[1], rtol=1e-12, atol=1e-12)
    merge_into(*left, *right)
    torch.testing.assert_close(left, whole, rtol=1e-12, atol=1e-12)


def test_seeing_nothing_is_the_identity(parts):
    """Fails when (0, -inf) changes the other side or meets itself with a NaN."""
    _, left, _ = parts
    nothing = torch.zeros_like(left[0]), torch.full_like(left[1], -torch.inf)
    for out, lse in (merge_lse(*left, *nothing), merge_lse(*nothing, *left)):
        assert torch.equal(out, left[0])
        assert torch.equal(lse, left[1])
    out, lse = merge_lse(*nothing, *nothing)
    assert torch.equal(out, nothing[0])
    assert torch.equal(lse, nothing[1])
    kept = left[0].clone(), left[1].clone()
    merge_into(*left, *nothing)
    assert torch.equal(left[0], kept[0])
    assert torch.equal(left[1], kept[1])


def test_a_nan_is_not_merged_away(parts):
    """Fails when a poisoned side disappears behind a weight of 0."""
    _, left, right = parts
    left[1][0, 0] = torch.nan
    out, lse = merge_lse(*left, *right)
    assert lse[0, 0].isnan()
    assert out[0, 0].isnan().all()
    assert out[1].isfinite().all()


def test_half_precision_is_joined_in_float32():
    """Fails when two bfloat16 sides are weighed in bfloat16: 3 roundings instead of 1."""
    generator = torch.Generator().manual_seed(5)
    outs = [torch.randn(64, 8, generator=generator).bfloat16() for _ in range(2)]
    lses = [torch.randn(64, generator=generator) for _ in range(2)]
    want, _ = merge_lse(outs[0].double(), lses[0].double(), outs[1].double(), lses[1].double())
    merge_into(outs[0], lses[0], outs[1], lses[1])
    # One rounding to bfloat16 is 2**-8 of the value; float32 noise is far below its slack.
    assert ((outs[0].double() - want).abs() <= 2**-8 * want.abs() * 1.001 + 1e-6).all()
