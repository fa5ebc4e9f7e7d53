"""Whether the engine's paths give a model's own numbers: asked of the model, not of a list."""

from __future__ import annotations

import inspect

import numpy as np
import torch

from ralm_engine.errors import InputError
from ralm_engine.lm.builder import RequestBuilder
from ralm_engine.lm.forward import packed_hidden, padded_hidden
from ralm_engine.lm.head import Head
from ralm_engine.lm.models import LoadedModel
from ralm_engine.lm.packing import pack, pad
from ralm_engine.lm.reference import score_row_by_row
from ralm_engine.lm.requests import Requests

# Rounding moves the probe by 1e-6 (float32) or 1e-2 (bfloat16) of its standard deviation; a wrong
# mask or position moves it by about 1.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_HALF_TOLERANCE = 0.2


def check_head(loaded: LoadedModel, head: Head) -> None:
    """Compares head and padded rows with the stock model's own logits on a few tokens.

    Raises:
        InputError: the model transforms its logits in a way the head does not know.
    """
    requests = _probe(loaded)
    batch = pad(requests, max_tokens=1024).batches[0]
    with torch.inference_mode():
        hidden = padded_hidden(loaded, requests, batch)
        target = torch.from_numpy(requests.target_W[batch.wants]).long().to(loaded.device)
        # sync: once per model load.
        nll = head.log_probability(hidden, target).nll.cpu().numpy()
    own = score_row_by_row(loaded, requests).nll_W[batch.wants]
    tolerance = _TOLERANCE.get(loaded.dtype, _HALF_TOLERANCE)
    if not np.allclose(nll, own, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise InputError(
            f"{type(loaded.model).__name__}: NLLs through its LM head differ from its own by "
            f"{float(np.abs(nll - own).max()):.2g}",
            hint="report the model; its logits are transformed in a way not known here",
        )


def cannot_pack(loaded: LoadedModel, max_length: int) -> str:
    """Why packed attention would not give the model's own numbers; empty if it does."""
    name = type(loaded.model).__name__
    if "position_ids" not in inspect.signature(loaded.model.base_model.forward).parameters:
        return f"{name} takes no position ids"
    window = _shortest_window(loaded)
    if window < max_length:
        return f"{name} attends within {window} tokens only, rows have up to {max_length}"
    requests = _probe(loaded)
    packed = pack(requests, max_tokens=1024).batches[0]
    padded = pad(requests, max_tokens=1024).batches[0]
    with torch.inference_mode():
        got = packed_hidden(loaded, requests, packed, "reference")[np.argsort(packed.wants)]
        own = padded_hidden(loaded, requests, padded)[np.argsort(padded.wants)]
        # sync: once per model load.
        error = float((got - own).abs().max() / own.float().std())
    if not error < _TOLERANCE.get(loaded.dtype, _HALF_TOLERANCE):
        return f"{name}'s attention is not plain causal attention"
    return ""


def _probe(loaded: LoadedModel) -> Requests:
    """Two rows that share their first five tokens."""
    config = loaded.model.config.get_text_config()
    ids = np.random.default_rng(0).integers(0, config.vocab_size, 17).astype(np.int32)
    builder = RequestBuilder()
    shared = builder.add_segment(ids[:5])
    for tokens in (ids[5:11], ids[11:17]):
        leaf = builder.add_segment(tokens, position=5, sees=[(shared, 5)])
        offsets = np.arange(tokens.size - 1, dtype=np.int32)
        builder.add_wants(leaf, predictor_segment=leaf, offsets=offsets, targets=tokens[1:])
    return builder.build()


def _shortest_window(loaded: LoadedModel) -> int:
    config = loaded.model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    layers = getattr(config, "layer_types", None)
    slides = (
        any("sliding" in layer or "chunked" in layer for layer in layers)
        if layers
        else getattr(config, "use_sliding_window", True)
    )
    return int(window) if window and slides else 2**31
