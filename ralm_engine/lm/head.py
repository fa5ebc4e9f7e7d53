"""The LM head in pieces, so that it runs only where a log-probability is wanted."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import ralm_kernels
from ralm_engine.errors import InputError
from ralm_engine.lm.models import LoadedModel


@dataclass(frozen=True, slots=True)
class Head:
    """logits = softcap(scale * (hidden @ weight.T + bias))."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    softcap: float | None

    def log_probability(
        self, hidden_MD: torch.Tensor, target_M: torch.Tensor
    ) -> ralm_kernels.TokenLogprob:
        """NLL, entropy and rank of each target, float32, without a [M, V] tensor."""
        return ralm_kernels.token_logprob(
            hidden_MD,
            self.weight,
            target_M,
            bias=self.bias,
            logit_scale=self.scale,
            softcap=self.softcap,
        )


def head_of(loaded: LoadedModel) -> Head:
    """Takes the LM head apart.

    Raises:
        InputError: the model has no plain linear head.
    """
    output = loaded.model.get_output_embeddings()
    if not isinstance(output, torch.nn.Linear):
        raise InputError(
            f"{type(loaded.model).__name__} has no linear LM head",
            hint="use a decoder-only causal LM",
        )
    config = loaded.model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or 1.0
    divisor = getattr(config, "logits_scaling", None) or 1.0
    return Head(
        weight=output.weight,
        bias=output.bias,
        scale=scale / divisor,
        softcap=getattr(config, "final_logit_softcapping", None),
    )
