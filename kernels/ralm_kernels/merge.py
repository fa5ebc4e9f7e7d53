"""Joins two attention results over disjoint keys through their log-sum-exp."""

from __future__ import annotations

import torch


def merge_lse(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merges attention over keys A with attention over keys B into attention over both.

    `(0, -inf)`, the result of seeing nothing, is the identity; merging it with itself gives it
    back. Commutative, and associative up to rounding.

    Args:
        out_a: [..., Dv], softmax-weighted values over A.
        lse_a: [...], natural log of the sum of exp(score) over A.
        out_b: as out_a, over B.
        lse_b: as lse_a, over B.

    Returns:
        (out [..., Dv] in the dtype of `out_a`, lse [...] in the dtype of `lse_a`).
    """
    lse = torch.logaddexp(lse_a, lse_b)
    seen = lse > -torch.inf
    weight_a = torch.where(seen, (lse_a - lse).exp(), 0.0).unsqueeze(-1)
    weight_b = torch.where(seen, (lse_b - lse).exp(), 0.0).unsqueeze(-1)
    weight_a = torch.where(lse.isnan().unsqueeze(-1), torch.nan, weight_a)
    return (out_a * weight_a + out_b * weight_b).to(out_a.dtype), lse


def merge_into(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> None:
    """`merge_lse` written over `out_a` and `lse_a`, for an A that saw at least one key.

    Half-precision outputs are joined in float32, so that the merge adds one rounding only.

    Args:
        out_a: [..., Dv], overwritten.
        lse_a: [...], float32 or float64, finite, overwritten.
        out_b: as out_a.
        lse_b: as lse_a, may be -inf.
    """
    weight_b = torch.sigmoid(lse_b - lse_a).unsqueeze(-1)
    if out_a.dtype == weight_b.dtype:
        out_a.lerp_(out_b, weight_b)
    else:
        out_a.copy_(torch.lerp(out_a.to(weight_b.dtype), out_b.to(weight_b.dtype), weight_b))
    torch.logaddexp(lse_a, lse_b, out=lse_a)
