"""Every kernel against float64 on fresh random inputs, with outputs poisoned before the launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from gpu_measure import Rows, Settings, random_plan

from ralm_kernels import cpu, flash, reference, triton_attention, triton_logprob
from ralm_kernels.logprob import token_logprob as chunked
from ralm_kernels.plan import SegmentPlan

HALF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# Tensor cores add float32 with a few bits less than a rounded sum; tf32x3 keeps 21 bits.
UNIT = {"cpu": 2.0**-24, "cuda": 2.0**-20}


def run(settings: Settings) -> Rows:
    """One row per check: the largest error over the bound derived from rounding; at most 1."""
    with _poisoned_memory():
        return [*_attention(settings), *_logprob(settings)]


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Inside, torch.empty is full of NaN: an element that a kernel forgets shows as NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before)


def _attention(settings: Settings) -> Rows:
    rows: Rows = []
    sizes = (32,) if settings.tiny else (32, 64, 80, 128, 256)
    dtypes = (torch.bfloat16, torch.float16, torch.float32)
    for size in sizes:
        # A kernel takes 5 s to compile: every size in bfloat16, two of them in all dtypes.
        for dtype in dtypes if settings.tiny or size in (64, 128) else dtypes[:1]:
            heads = [(1, 1), (6, 2), (8, 1), (7, 1)][int(settings.rng.integers(4))]
            longest = 24 if settings.tiny else 700
            plan = random_plan(settings.rng, segments=6 if settings.tiny else 24, longest=longest)
            shapes = [(plan.num_tokens, count, size) for count in (heads[0], heads[1], heads[1])]
            qkv = [settings.randn(*shape, dtype=dtype) for shape in shapes]
            rows += _attention_errors(settings, plan, qkv, heads)
    return rows


def _attention_errors(
    settings: Settings, plan: SegmentPlan, qkv: list[torch.Tensor], heads: tuple[int, int]
) -> Rows:
    q, k, v = qkv
    scale = q.shape[2] ** -0.5
    want = _reference_by_head(plan, qkv, scale)
    unit = UNIT[settings.device.type]
    norms = [float(x.float().norm(dim=-1).amax()) for x in (q, k)]
    score = q.shape[2] * unit * norms[0] * norms[1] * scale
    weight = 2 * score + (plan.num_tokens + 8) * unit
    largest_v = float(v.float().abs().amax())
    out_bound = (weight + 3 * HALF.get(q.dtype, 0.0)) * largest_v
    lse_bound = weight + 8 * (unit + score)
    rows: Rows = []
    for name, attend in _backends(settings, q).items():
        out, lse = attend(q, k, v, plan, scale=scale)
        errors = [
            float((a.double() - b).abs().amax()) for a, b in zip((out, lse), want, strict=True)
        ]
        case = f"{name} {str(q.dtype)[6:]} head {q.shape[2]} heads {heads[0]}/{heads[1]}"
        ratio = max(errors[0] / out_bound, errors[1] / lse_bound)
        rows.append({"check": case, "tokens": plan.num_tokens, "error": errors[0], "ratio": ratio})
    return rows


def _backends(settings: Settings, q: torch.Tensor) -> dict[str, Callable[..., object]]:
    found: dict[str, Callable[..., object]] = {"triton": triton_attention.segment_attention}
    if settings.device.type == "cpu":
        found["cpu"] = cpu.segment_attention
    elif q.dtype in HALF:
        found["flash"] = partial(flash.segment_attention, varlen=flash.torch_varlen)
    return found


def _reference_by_head(
    plan: SegmentPlan, qkv: list[torch.Tensor], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The specification in float64, a head at a time to bound the dense scores."""
    q, k, v = (x.double() for x in qkv)
    group = q.shape[1] // k.shape[1]
    parts = [
        reference.segment_attention(
            q[:, h : h + 1], k[:, h // group : h // group + 1], v[:, h // group : h // group + 1],
            plan, scale=scale,
        )
        for h in range(q.shape[1])
    ]  # fmt: skip
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


def _logprob(settings: Settings) -> Rows:
    rows: Rows = []
    shapes = [(20, 24, 150)] if settings.tiny else [(257, 768, 50257), (130, 1000, 151936)]
    options = [{"bias": True}, {"logit_scale": 0.25, "softcap": 20.0}, {}]
    for shape in shapes:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for option in options if dtype == torch.bfloat16 else options[:1]:
                rows += _logprob_errors(settings, shape, dtype, dict(option))
    return rows


def _logprob_errors(
    settings: Settings, shape: tuple[int, int, int], dtype: torch.dtype, option: dict
) -> Rows:
    num_rows, size, vocabulary = shape
    hidden = settings.randn(num_rows, size, dtype=dtype)
    weight = settings.randn(vocabulary, size, dtype=dtype, scale=2.0 * size**-0.5)
    targets = torch.from_numpy(settings.rng.integers(0, vocabulary, num_rows)).to(settings.device)
    if "bias" in option:
        option["bias"] = settings.randn(vocabulary, dtype=dtype)
    logits = hidden.double() @ weight.double().T + option.get("bias", torch.zeros(())).double()
    logits *= option.get("logit_scale", 1.0)
    if "softcap" in option:
        logits = option["softcap"] * torch.tanh(logits / option["softcap"])
    log_p = logits.log_softmax(-1)
    wanted = logits.gather(1, targets[:, None])
    want = {
        "nll": -log_p.gather(1, targets[:, None]).squeeze(1),
        "logsumexp": logits.logsumexp(-1),
        "entropy": torch.special.entr(log_p.exp()).sum(1),
    }
    rank = (logits > wanted).sum(1)
    unit = UNIT[settings.device.type]
    products = float(hidden.double().norm(dim=1).amax() * weight.double().norm(dim=1).amax())
    bound = unit * (2 * size * products + 8 * float(logits.abs().amax()) + 64)
    near = ((logits - wanted).abs() <= 2 * bound).sum(1)
    rows: Rows = []
    for name, score in (("triton", triton_logprob.token_logprob), ("torch", chunked)):
        got = score(hidden, weight, targets, **option)
        errors = {k: float((getattr(got, k).double() - x).abs().amax()) for k, x in want.items()}
        # Entropy weighs the rounding of a logit with its distance from the maximum.
        errors["entropy"] /= 1 + 2 * float(want["entropy"].amax())
        error = max(errors.values())
        ranked = bool(((got.rank - rank).abs() <= near).all())
        ratio = error / bound if ranked else float("inf")
        case = f"log-prob {name} {str(dtype)[6:]} V {vocabulary} {' '.join(option)}".strip()
        rows.append({"check": case, "tokens": num_rows, "error": error, "ratio": ratio})
    return rows
