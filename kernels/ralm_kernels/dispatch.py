"""Chooses between a kernel and its plain-torch twin by device and dtype."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from ralm_kernels.logprob import CHUNK_BYTES, TokenLogprob
from ralm_kernels.logprob import token_logprob as chunked_token_logprob


def token_logprob(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenLogprob:
    """NLL, log-sum-exp, entropy and rank of each target; see `logprob.token_logprob`.

    Half precision on a CUDA device runs the Triton kernel, which keeps no logits and so needs no
    chunks. Everything else, float32 on a GPU too (whose products cuBLAS takes exactly), runs the
    chunked twin.
    """
    options = {"bias": bias, "logit_scale": logit_scale, "softcap": softcap}
    is_half = hidden.dtype in (torch.bfloat16, torch.float16)
    if hidden.device.type == "cuda" and is_half and find_spec("triton"):
        from ralm_kernels.triton_logprob import token_logprob as fused

        return fused(hidden, weight, targets, **options)
    return chunked_token_logprob(hidden, weight, targets, chunk_bytes=chunk_bytes, **options)
