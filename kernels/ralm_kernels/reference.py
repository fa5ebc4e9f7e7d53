"""The specification of segment attention: one dense mask, short and obviously right."""

from __future__ import annotations

import torch

from ralm_kernels.plan import SegmentPlan, check_packed


def visibility_mask(plan: SegmentPlan) -> torch.Tensor:
    """Which key each query sees, bool [T, T]. For tests and small batches only."""
    num_tokens = plan.num_tokens
    mask_TT = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    cu_tokens, cu_ranges = plan.cu_tokens_S1.tolist(), plan.cu_ranges_S1.tolist()
    begins, ends = plan.range_begin_R.tolist(), plan.range_end_R.tolist()
    for s in range(plan.num_segments):
        first, last = cu_tokens[s], cu_tokens[s + 1]
        mask_TT[first:last, first:last] = torch.ones(last - first, last - first).tril().bool()
        for r in range(cu_ranges[s], cu_ranges[s + 1]):
            mask_TT[first:last, begins[r] : ends[r]] = True
    return mask_TT


@torch.no_grad()
def segment_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: SegmentPlan, *, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a packed batch by dense mask: O(T * T) time and memory.

    Args:
        q: [T, H, D].
        k: [T, Hkv, D]; query head h reads key head h // (H / Hkv).
        v: [T, Hkv, Dv].
        plan: what every token sees.
        scale: factor of the scores, before softmax.

    Returns:
        (out [T, H, Dv] in q's dtype, lse [T, H] natural log), computed in float64 for float64
        inputs and in float32 for all others; the lse stays in the dtype of the computation.

    Raises:
        ValueError: shapes or dtypes disagree with each other or with the plan.
    """
    check_packed(q, k, v, num_tokens=plan.num_tokens)
    work = torch.float64 if q.dtype == torch.float64 else torch.float32
    group = q.shape[1] // k.shape[1]
    k_HTD = k.to(work).repeat_interleave(group, dim=1).transpose(0, 1)
    v_HTD = v.to(work).repeat_interleave(group, dim=1).transpose(0, 1)
    hidden_TT = ~visibility_mask(plan).to(q.device)
    scores_HTT = (q.to(work).transpose(0, 1) @ k_HTD.transpose(1, 2)) * scale
    scores_HTT.masked_fill_(hidden_TT, -torch.inf)
    lse_HT = scores_HTT.logsumexp(-1)
    out_HTD = scores_HTT.sub_(lse_HT.unsqueeze(-1)).exp_() @ v_HTD
    return out_HTD.transpose(0, 1).to(q.dtype), lse_HT.transpose(0, 1)
