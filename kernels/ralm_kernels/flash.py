"""Segment attention through flash-attn's variable-length kernel, merged by log-sum-exp.

One causal call for all segments, one call for what they see, whose keys are gathered first: an
earlier segment that n runs of segments see is copied n times. flash-attn is optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, groupby

import torch

from ralm_kernels.merge import merge_lse
from ralm_kernels.plan import SegmentPlan, check_packed, filled_segments

# (q, k, v, cu_q, cu_k, max_q, max_k, is_causal, scale) -> (out [Tq, H, D], lse [H, Tq]).
Varlen = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lengths:
    """Borders of the sequences of one variable-length call."""

    cu_N1: torch.Tensor
    longest: int

    @classmethod
    def of(cls, lengths: list[int]) -> Lengths:
        """From the length of each sequence."""
        borders = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return cls(cu_N1=borders, longest=max(lengths, default=0))

    def to(self, device: torch.device) -> Lengths:
        """The same on a device."""
        return Lengths(cu_N1=self.cu_N1.to(device), longest=self.longest)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlashPlan:
    """A `SegmentPlan` as two variable-length calls.

    Attributes:
        num_tokens: T.
        own: the segments that have tokens.
        queries: the runs of adjacent segments that see the same keys.
        keys: what each run sees.
        query_index: packed token of each query of the second call, int64.
        key_index: packed token of each key of the second call, int64.
    """

    num_tokens: int
    own: Lengths
    queries: Lengths
    keys: Lengths
    query_index: torch.Tensor
    key_index: torch.Tensor
    on_device: dict[torch.device, FlashPlan] = field(default_factory=dict)

    def to(self, device: torch.device) -> FlashPlan:
        """The same on a device; copied once, since all layers of a batch ask for it."""
        if device not in self.on_device:
            self.on_device[device] = FlashPlan(
                num_tokens=self.num_tokens,
                own=self.own.to(device),
                queries=self.queries.to(device),
                keys=self.keys.to(device),
                query_index=self.query_index.to(device),
                key_index=self.key_index.to(device),
            )
        return self.on_device[device]


def prepare(plan: SegmentPlan) -> FlashPlan:
    """Lists the sequences of both calls, once a batch. Linear in tokens and keys seen."""
    filled = filled_segments(plan)
    runs = []
    for spans, same in groupby(filled, key=lambda segment: segment[2]):
        members = list(same)
        if spans:
            runs.append((members[0][0], members[-1][1], spans))
    return FlashPlan(
        num_tokens=plan.num_tokens,
        own=Lengths.of([end - begin for begin, end, _ in filled]),
        queries=Lengths.of([end - begin for begin, end, _ in runs]),
        keys=Lengths.of([sum(end - begin for begin, end in spans) for _, _, spans in runs]),
        query_index=_tokens([(begin, end) for begin, end, _ in runs]),
        key_index=_tokens([span for _, _, spans in runs for span in spans]),
    )


def segment_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: SegmentPlan | FlashPlan,
    *,
    scale: float,
    varlen: Varlen | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a packed batch by two variable-length calls.

    Args:
        q: [T, H, D] bfloat16 or float16 on a GPU; D up to 256.
        k: [T, Hkv, D]; query head h reads key head h // (H / Hkv).
        v: [T, Hkv, D].
        plan: a `FlashPlan` from `prepare`, or the plan itself, which is then prepared here.
        scale: factor of the scores, before softmax.
        varlen: the kernel; flash-attn's where None. `torch_varlen` is the one inside torch.

    Returns:
        (out [T, H, D] in q's dtype, lse float32 [T, H], natural log).

    Raises:
        ModuleNotFoundError: flash-attn is not installed; the message says what to do.
        ValueError: shapes or dtypes disagree with each other or with the plan.
    """
    check_packed(q, k, v, num_tokens=plan.num_tokens)
    varlen = flash_attn_varlen() if varlen is None else varlen
    plan = prepare(plan) if isinstance(plan, SegmentPlan) else plan
    plan = plan.to(q.device)
    if plan.num_tokens == 0:
        return q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[:2], dtype=torch.float32)
    own = plan.own
    out, lse = varlen(
        q, k, v, own.cu_N1, own.cu_N1, own.longest, own.longest, is_causal=True, scale=scale
    )  # fmt: skip
    lse = lse.transpose(0, 1)
    if plan.query_index.numel():
        index, queries, keys = plan.query_index, plan.queries, plan.keys
        seen, seen_lse = varlen(
            q[index], k[plan.key_index], v[plan.key_index], queries.cu_N1, keys.cu_N1,
            queries.longest, keys.longest, is_causal=False, scale=scale,
        )  # fmt: skip
        both, both_lse = merge_lse(
            out[index].float(), lse[index], seen.float(), seen_lse.transpose(0, 1)
        )
        out[index] = both.to(out.dtype)
        lse = lse.index_copy(0, index, both_lse)
    return out, lse.contiguous()


def flash_attn_varlen() -> Varlen:
    """flash-attn's kernel.

    Raises:
        ModuleNotFoundError: flash-attn is not installed.
    """
    try:
        kernel = importlib.import_module("flash_attn").flash_attn_varlen_func
    except ModuleNotFoundError as error:
        message = (
            "flash backend: flash-attn is not installed; "
            "install it (pip install ralm-engine[gpu]) or choose the triton backend"
        )
        raise ModuleNotFoundError(message, name="flash_attn") from error

    def call(q, k, v, cu_q, cu_k, max_q, max_k, *, is_causal, scale):
        out, lse, _ = kernel(
            q, k, v, cu_q, cu_k, max_q, max_k,
            softmax_scale=scale, causal=is_causal, return_attn_probs=True,
        )  # fmt: skip
        return out, lse

    return call


def torch_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The flash kernel inside torch (CUDA): (out [Tq, H, D], lse [H, Tq])."""
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, cu_q, cu_k, max_q, max_k,
        dropout_p=0.0, is_causal=is_causal, return_debug_mask=False, scale=scale,
    )  # fmt: skip
    return out, lse


def _tokens(spans: list[tuple[int, int]]) -> torch.Tensor:
    parts = [torch.arange(begin, end) for begin, end in spans]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
