"""What a forward pass costs, from a model's configuration alone: no weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.pytorch_utils import Conv1D

from ralm_kernels.logprob import CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Floating-point operations (a multiply-add is 2) and bytes of a model.

    Attributes:
        flop_per_token: matrix products of the decoder, per forwarded token.
        flop_per_pair: attention scores and sums, per (query, key) pair over all layers.
        flop_per_want: LM head, per wanted NLL.
        num_parameters: of the whole model.
        hidden_size, widest, vocabulary_size: D, the widest activation of a layer, V.
    """

    flop_per_token: float
    flop_per_pair: float
    flop_per_want: float
    num_parameters: int
    hidden_size: int
    widest: int
    vocabulary_size: int

    def flop(self, *, tokens: float, pairs: float, wants: float) -> float:
        """All of it."""
        return (
            self.flop_per_token * tokens + self.flop_per_pair * pairs + self.flop_per_want * wants
        )

    def memory_bytes(self, *, tokens: int, bytes_per_value: int) -> int:
        """Peak memory of scoring: parameters, one batch of activations, one logits chunk.

        Activations at the peak of a layer: residual, normalised input, and three tensors of the
        widest projection (gate, up and their product), all [tokens, width].
        """
        activations = tokens * (4 * self.hidden_size + 3 * self.widest) * bytes_per_value
        # The chunk and as much scratch.
        logits = 2 * max(CHUNK_BYTES, 4 * self.vocabulary_size)
        return self.num_parameters * bytes_per_value + activations + logits


def cost_of(config: PretrainedConfig) -> CostModel:
    """Counts a model's matrix products on the meta device, whatever its architecture."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()
    linear = [m for m in model.base_model.modules() if isinstance(m, torch.nn.Linear | Conv1D)]
    heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return CostModel(
        flop_per_token=2.0 * sum(m.weight.numel() for m in linear),
        flop_per_pair=4.0 * text.num_hidden_layers * heads * head_size,
        flop_per_want=2.0 * text.hidden_size * text.vocab_size,
        num_parameters=sum(p.numel() for p in model.parameters()),
        hidden_size=text.hidden_size,
        widest=max((max(m.weight.shape) for m in linear), default=text.hidden_size),
        vocabulary_size=text.vocab_size,
    )
