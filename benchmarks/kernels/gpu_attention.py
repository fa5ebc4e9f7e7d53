"""Segment attention against flash, SDPA on duplicated prefixes, and FlexAttention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_measure import Rows, Settings, measure, prefix_plan, tail_plan
from torch.nn import functional

from ralm_kernels import cpu, flash, triton_attention
from ralm_kernels.plan import SegmentPlan

Qkv = tuple[torch.Tensor, ...]

# Query heads, key heads, head size: a 1B and a 7B (and 8B) LLaMA.
GEOMETRIES = ((32, 8, 64), (32, 32, 128), (32, 8, 128))


def run(settings: Settings) -> Rows:
    """One row per case and geometry; the baselines' milliseconds stand beside ours."""
    rows: Rows = []
    for geometry in ((3, 1, 32),) if settings.tiny else GEOMETRIES:
        for length in (16,) if settings.tiny else (1024, 4096):
            rows.append(_plain(settings, geometry, length=length))
        for prefix in (16,) if settings.tiny else (512, 1024):
            for branches in (2,) if settings.tiny else (4, 16):
                rows.append(_prefix(settings, geometry, prefix=prefix, branches=branches))
        rows.append(_tails(settings, geometry))
    return rows


def _plain(settings: Settings, geometry: tuple[int, int, int], *, length: int) -> dict:
    count = 2 if settings.tiny else 16384 // length
    plan = SegmentPlan.from_lists([length] * count)
    q, k, v = _qkv(settings, geometry, plan.num_tokens)
    row = _ours(settings, f"plain causal {count} x {length}", geometry, plan, (q, k, v))
    batch = [x.unflatten(0, (count, length)).transpose(1, 2) for x in (q, k, v)]
    row["sdpa_ms"] = measure(
        settings,
        lambda: functional.scaled_dot_product_attention(*batch, is_causal=True, enable_gqa=True),
    ).median_ms
    return _with_flash(settings, row, plan, (q, k, v), plan, (q, k, v))


def _prefix(
    settings: Settings, geometry: tuple[int, int, int], *, prefix: int, branches: int
) -> dict:
    """Branches that share a prefix, against rows that each repeat it."""
    branch = 8 if settings.tiny else 64
    groups = 1 if settings.tiny else max(1, 16384 // (prefix + branches * branch))
    plan = prefix_plan(groups=groups, prefix=prefix, branches=branches, branch=branch)
    qkv = _qkv(settings, geometry, plan.num_tokens)
    name = f"prefix {prefix}, {branches} branches of {branch}, {groups} groups"
    row = _ours(settings, name, geometry, plan, qkv)
    copies = SegmentPlan.from_lists([prefix + branch] * (groups * branches))
    row = _with_flash(
        settings, row, plan, qkv, copies, _qkv(settings, geometry, copies.num_tokens)
    )  # fmt: skip
    if settings.device.type == "cuda" and branches == 16 and prefix == 1024:
        row["flex_ms"] = _flex_ms(settings, plan, qkv)
    return row


def _tails(settings: Settings, geometry: tuple[int, int, int]) -> dict:
    context, passages, passage, tail = (16, 2, 8, 4) if settings.tiny else (1024, 16, 128, 24)
    plan = tail_plan(context=context, passages=passages, passage=passage, tail=tail)
    qkv = _qkv(settings, geometry, plan.num_tokens)
    row = _ours(settings, f"parallel tails {passages} x {tail}", geometry, plan, qkv)
    copies = SegmentPlan.from_lists([context + passage + tail] * passages)
    return _with_flash(
        settings, row, plan, qkv, copies, _qkv(settings, geometry, copies.num_tokens)
    )  # fmt: skip


def _qkv(settings: Settings, geometry: tuple[int, int, int], num_tokens: int) -> Qkv:
    heads, key_heads, size = geometry
    return tuple(
        settings.randn(num_tokens, count, size, dtype=torch.bfloat16)
        for count in (heads, key_heads, key_heads)
    )


def _ours(
    settings: Settings, name: str, geometry: tuple[int, int, int], plan: SegmentPlan, qkv: Qkv
) -> dict:
    prepared = triton_attention.prepare(plan)
    timing = measure(settings, _call(triton_attention.segment_attention, qkv, prepared))
    flop = 4 * geometry[0] * geometry[2] * plan.num_pairs
    return {
        "case": name,
        "heads": f"{geometry[0]}/{geometry[1]}/{geometry[2]}",
        "tokens": plan.num_tokens,
        **timing.columns(),
        "tflops": round(flop / timing.median_ms / 1e9, 1),
        "peak_ratio": round(flop / timing.median_ms / 1e9 / settings.peak_tflops, 3),
    }


def _with_flash(
    settings: Settings,
    row: dict,
    plan: SegmentPlan,
    qkv: Qkv,
    copies: SegmentPlan,
    copied_qkv: Qkv,
) -> dict:
    """Adds the flash adapter on the same batch, and one kernel call on the duplicated rows."""
    if settings.device.type != "cuda":
        twin = measure(settings, _call(cpu.segment_attention, qkv, cpu.prepare(plan)))
        copied = _call(cpu.segment_attention, copied_qkv, cpu.prepare(copies))
        return row | {"twin_ms": twin.median_ms, "copies_ms": measure(settings, copied).median_ms}
    adapter = measure(
        settings, _call(flash.segment_attention, qkv, flash.prepare(plan), flash.torch_varlen)
    )
    copied = measure(
        settings,
        _call(flash.segment_attention, copied_qkv, flash.prepare(copies), flash.torch_varlen),
    )
    return row | {
        "flash_ms": adapter.median_ms,
        "copies_ms": copied.median_ms,
        "speed_over_copies": round(copied.median_ms / row["ms"], 2),
        "speed_over_flash": round(adapter.median_ms / row["ms"], 2),
    }


def _call(
    attend: Callable[..., object],
    qkv: Qkv,
    prepared: object,
    varlen: flash.Varlen | None = None,
) -> Callable[[], object]:
    scale = qkv[0].shape[2] ** -0.5
    options = {} if varlen is None else {"varlen": varlen}
    return lambda: attend(*qkv, prepared, scale=scale, **options)


def _flex_ms(settings: Settings, plan: SegmentPlan, qkv: Qkv) -> float:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tokens = plan.num_tokens
    lengths = plan.cu_tokens_S1.diff()
    own = plan.cu_tokens_S1[:-1].repeat_interleave(lengths).to(settings.device)
    begin_S, end_S = torch.zeros_like(lengths), torch.zeros_like(lengths)
    viewers = plan.segment_of_range()
    begin_S[viewers], end_S[viewers] = plan.range_begin_R, plan.range_end_R
    begin, end = (x.repeat_interleave(lengths).to(settings.device) for x in (begin_S, end_S))

    def sees(
        _batch: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        in_range = (key >= begin[query]) & (key < end[query])
        return in_range | ((key >= own[query]) & (key <= query))

    mask = create_block_mask(sees, None, None, tokens, tokens, device=settings.device)
    q, k, v = (x.transpose(0, 1)[None].contiguous() for x in qkv)
    compiled = torch.compile(flex_attention, dynamic=False)
    grouped = q.shape[1] != k.shape[1]
    return measure(
        settings, lambda: compiled(q, k, v, block_mask=mask, enable_gqa=grouped)
    ).median_ms
