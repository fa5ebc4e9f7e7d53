"""Runs packed segments through any Hugging Face model, by way of its attention interface."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from transformers import AttentionInterface, PreTrainedModel

import ralm_kernels
from ralm_engine.errors import MissingDependencyError
from ralm_engine.lm.config import AttentionBackend
from ralm_engine.lm.packing import Batch
from ralm_engine.lm.requests import Requests

IMPLEMENTATION = "ralm_segments"
"""Name under which the packed attention is registered with transformers."""

PackedBackend = Literal["reference", "cpu", "triton", "flash"]


@dataclass(frozen=True, slots=True)
class _Active:
    """The attention of the forward pass that is running."""

    attend: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    prepared: Any


_active: ContextVar[_Active] = ContextVar("ralm_segments")


_MODULES: dict[PackedBackend, str] = {
    "reference": "ralm_kernels.reference",
    "cpu": "ralm_kernels.cpu",
    "triton": "ralm_kernels.triton_attention",
    "flash": "ralm_kernels.flash",
}
"""Each module has `segment_attention`, called once a layer; some prepare the plan once a batch."""


def choose_backend(wanted: AttentionBackend, device: torch.device) -> PackedBackend:
    """Resolves `auto` by device.

    Raises:
        MissingDependencyError: a GPU backend on a machine without one.
    """
    if wanted == "auto":
        return "cpu" if device.type == "cpu" else "triton"
    assert wanted != "padded"
    if wanted in ("triton", "flash") and device.type != "cuda":
        raise MissingDependencyError(
            f'[model] attention = "{wanted}" needs a CUDA device, the model is on {device}',
            hint='set attention = "auto"',
        )
    if wanted == "flash" and importlib.util.find_spec("flash_attn") is None:
        raise MissingDependencyError(
            '[model] attention = "flash": flash-attn is not installed',
            hint='pip install flash-attn, or set attention = "auto"',
        )
    return wanted


def segment_plan(requests: Requests, batch: Batch) -> ralm_kernels.SegmentPlan:
    """Where each segment of a packed batch lies and which packed ranges it sees."""
    lengths = requests.lengths_S[batch.segments]
    cu_tokens = np.concatenate([[0], np.cumsum(lengths)])
    packed_begin = dict(zip(batch.segments.tolist(), cu_tokens[:-1].tolist(), strict=True))
    begins, ends, counts = [], [], [0]
    for segment in batch.segments.tolist():
        edges = slice(requests.cu_sees_S1[segment], requests.cu_sees_S1[segment + 1])
        for seen, length in zip(requests.sees_E[edges], requests.sees_len_E[edges], strict=True):
            begin = packed_begin[int(seen)]
            begins.append(begin)
            ends.append(begin + int(length))
        counts.append(len(begins))

    def tensor(values: Any) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.int64)

    return ralm_kernels.SegmentPlan(
        cu_tokens_S1=tensor(cu_tokens),
        cu_ranges_S1=tensor(counts),
        range_begin_R=tensor(begins),
        range_end_R=tensor(ends),
    )


@contextmanager
def packed_attention(
    model: PreTrainedModel, plan: ralm_kernels.SegmentPlan, backend: PackedBackend
) -> Iterator[None]:
    """Inside, the model's attention is segment attention over `plan`; its own comes back after."""
    module = importlib.import_module(_MODULES[backend])
    stock = model.config._attn_implementation
    prepare = getattr(module, "prepare", lambda whole: whole)
    token = _active.set(_Active(module.segment_attention, prepare(plan)))
    model.config._attn_implementation = IMPLEMENTATION
    try:
        yield
    finally:
        model.config._attn_implementation = stock
        _active.reset(token)


def _segment_attention(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The attention signature of transformers: [1, H, T, D] in, [1, T, H, D] out."""
    active = _active.get()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out, _lse = active.attend(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        active.prepared,
        scale=scale,
    )
    return out[None], None


AttentionInterface.register(IMPLEMENTATION, _segment_attention)
