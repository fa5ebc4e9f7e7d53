"""Segment attention on a CPU: fused kernels per segment and per visible range, no T x T mask.

Plan once a batch, run once a layer: `prepare` turns the columns into a short list of calls, and
`segment_attention` only slices, calls torch's fused CPU kernel and merges by log-sum-exp.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
from torch.nn import functional

from ralm_kernels.merge import merge_into
from ralm_kernels.plan import SegmentPlan, Span, check_packed, filled_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleCall:
    """Adjacent segments, together tokens begin:end, that see the same keys."""

    begin: int
    end: int
    keys: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPlan:
    """A `SegmentPlan` as a list of fused calls. Holds no tensor.

    Attributes:
        num_tokens: T.
        causal: the segments that have tokens, one call each. Equal lengths are not batched: the
            products inside round by the thread they run on, and so equal rows of one batch would
            differ in the last bit. The calls cost 1% of a layer at 40 tokens a segment.
        visible: runs of segments that see the same keys.
    """

    num_tokens: int
    causal: tuple[Span, ...]
    visible: tuple[VisibleCall, ...]


def prepare(plan: SegmentPlan) -> CpuPlan:
    """Lists the fused calls of a batch; linear in segments and ranges, reused by all layers."""
    filled = filled_segments(plan)
    causal = tuple((begin, end) for begin, end, _ in filled)
    visible = []
    for keys, same in groupby(filled, key=lambda item: item[2]):
        run = list(same)
        if keys:
            visible.append(VisibleCall(begin=run[0][0], end=run[-1][1], keys=keys))
    return CpuPlan(num_tokens=plan.num_tokens, causal=causal, visible=tuple(visible))


@torch.no_grad()
def segment_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: SegmentPlan | CpuPlan, *, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a packed batch by fused calls; memory linear in T.

    Args:
        q: [T, H, D] on the CPU; any strides, the last dimension contiguous.
        k: [T, Hkv, D]; query head h reads key head h // (H / Hkv).
        v: [T, Hkv, Dv].
        plan: a `CpuPlan` from `prepare`, or the plan itself, which is then prepared here.
        scale: factor of the scores, before softmax.

    Returns:
        (out [T, H, Dv] in q's dtype, lse [T, H] natural log, float64 for float64 inputs and
        float32 for all others).

    Raises:
        ValueError: shapes or dtypes disagree with each other or with the plan.
    """
    plan = prepare(plan) if isinstance(plan, SegmentPlan) else plan
    check_packed(q, k, v, num_tokens=plan.num_tokens)
    head_size, value_size = q.shape[2], v.shape[2]
    if head_size != value_size:
        q, k, v = (_padded(x, max(head_size, value_size)) for x in (q, k, v))
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    out = torch.empty(q.shape, dtype=q.dtype)
    lse = torch.empty(q.shape[:2], dtype=lse_dtype)
    for begin, end in plan.causal:
        _attend_own(out, lse, (q, k, v), tokens=slice(begin, end), scale=scale)
    for seen in plan.visible:
        _attend_visible(out, lse, (q, k, v), call=seen, scale=scale)
    return out[..., :value_size], lse


def _padded(x_THD: torch.Tensor, size: int) -> torch.Tensor:
    return functional.pad(x_THD, (0, size - x_THD.shape[2])) if x_THD.shape[2] < size else x_THD


# The fused kernel takes [batch, heads, length, head size] at any strides and pairs query head h
# with key head h // (H / Hkv) itself (torch 2.9 and later), so nothing here copies K or V. It
# divides by zero on empty lengths: `prepare` lists none.
def _fused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, is_causal, scale=scale
    )
    return out.transpose(1, 2), lse.transpose(1, 2)


def _attend_own(
    out: torch.Tensor,
    lse: torch.Tensor,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    tokens: slice,
    scale: float,
) -> None:
    q, k, v = (x[tokens].unsqueeze(0) for x in qkv)
    own, own_lse = _fused(q, k, v, is_causal=True, scale=scale)
    out[tokens] = own[0]
    lse[tokens] = own_lse[0]


def _attend_visible(
    out: torch.Tensor,
    lse: torch.Tensor,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    call: VisibleCall,
    scale: float,
) -> None:
    q, k, v = qkv
    tokens = slice(call.begin, call.end)
    seen_k, seen_v = (_rows(x, call.keys) for x in (k, v))
    other, other_lse = _fused(
        q[tokens].unsqueeze(0), seen_k.unsqueeze(0), seen_v.unsqueeze(0),
        is_causal=False, scale=scale,
    )  # fmt: skip
    merge_into(out[tokens], lse[tokens], other[0], other_lse[0])


def _rows(x_THD: torch.Tensor, spans: tuple[Span, ...]) -> torch.Tensor:
    parts = [x_THD[begin:end] for begin, end in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
