"""Fused token log-prob against full and chunked logits: time and peak memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_measure import Rows, Settings, measure

from ralm_kernels import triton_logprob
from ralm_kernels.logprob import token_logprob as chunked

# Rows, hidden size, vocabulary: GPT-2, a 1B and an 8B LLaMA, a Qwen.
SHAPES = ((8192, 768, 50257), (8192, 2048, 128256), (8192, 4096, 128256), (4096, 896, 151936))


def run(settings: Settings) -> Rows:
    """One row per shape and way of computing; peak memory is above inputs and weights."""
    rows: Rows = []
    for num_rows, size, vocabulary in ((8, 16, 60),) if settings.tiny else SHAPES:
        hidden = settings.randn(num_rows, size, dtype=torch.bfloat16)
        weight = settings.randn(vocabulary, size, dtype=torch.bfloat16, scale=size**-0.5)
        picked = settings.rng.integers(0, vocabulary, num_rows)
        targets = torch.from_numpy(picked).to(settings.device)
        for name, score in WAYS.items():
            timing = measure(settings, _call(score, hidden, weight, targets))
            tflops = 2 * num_rows * size * vocabulary / timing.median_ms / 1e9
            rows.append({
                "case": f"M {num_rows} D {size} V {vocabulary}",
                "way": name,
                **timing.columns(),
                "tflops": round(tflops, 1),
                "peak_ratio": round(tflops / settings.peak_tflops, 3),
            })  # fmt: skip
    return rows


def _full(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """What the straightforward evaluation does: all logits, NLL only."""
    log_p = (hidden @ weight.T).float().log_softmax(-1)
    return log_p.gather(1, targets[:, None])


WAYS: dict[str, Callable[..., object]] = {
    "fused": triton_logprob.token_logprob,
    "chunked": chunked,
    "full": _full,
}


def _call(score: Callable[..., object], *inputs: torch.Tensor) -> Callable[[], object]:
    return lambda: score(*inputs)
