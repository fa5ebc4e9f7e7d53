"""One batch -> hidden states at the predicting tokens; packed segments or padded rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ralm_engine.lm.attention import PackedBackend, packed_attention, segment_plan
from ralm_engine.lm.models import LoadedModel
from ralm_engine.lm.packing import Batch
from ralm_engine.lm.reference import flatten_row
from ralm_engine.lm.requests import Requests


def packed_hidden(
    loaded: LoadedModel, requests: Requests, batch: Batch, backend: PackedBackend
) -> torch.Tensor:
    """Runs a packed batch.

    Returns:
        [W, D] final hidden states at the predicting token of each want of the batch.
    """
    lengths = requests.lengths_S[batch.segments]
    begin_of = np.zeros(requests.num_segments, dtype=np.int64)
    begin_of[batch.segments] = np.cumsum(lengths) - lengths
    ids = np.concatenate([requests.tokens(s) for s in batch.segments.tolist()])
    offsets = np.arange(ids.size) - np.repeat(begin_of[batch.segments], lengths)
    positions = np.repeat(requests.position_S[batch.segments], lengths) + offsets
    plan = segment_plan(requests, batch)
    with packed_attention(loaded.model, plan, backend):
        hidden = _forward(loaded, ids[None], position_ids=positions[None])
    segment = requests.predictor_segment_W[batch.wants]
    predictors = begin_of[segment] + requests.predictor_offset_W[batch.wants]
    return hidden[0, torch.from_numpy(predictors).to(loaded.device)]


def padded_hidden(loaded: LoadedModel, requests: Requests, batch: Batch) -> torch.Tensor:
    """The same for whole rows, padded on the right, where causal attention never looks."""
    rows, row_index, column = [], [], []
    for number, leaf in enumerate(batch.segments.tolist()):
        begin, end = np.searchsorted(requests.owner_W, [leaf, leaf + 1])
        tokens, predictors = flatten_row(requests, leaf, slice(int(begin), int(end)))
        rows.append(tokens)
        row_index.append(np.full(predictors.size, number))
        column.append(predictors.astype(np.int64))
    ids = np.zeros((len(rows), max(r.size for r in rows)), dtype=np.int32)
    for number, tokens in enumerate(rows):
        ids[number, : tokens.size] = tokens
    hidden = _forward(loaded, ids)
    return hidden[
        torch.from_numpy(np.concatenate(row_index)).to(loaded.device),
        torch.from_numpy(np.concatenate(column)).to(loaded.device),
    ]


def _forward(
    loaded: LoadedModel, ids: np.ndarray[Any, Any], **positions: np.ndarray[Any, Any]
) -> torch.Tensor:
    arguments = {
        name: torch.from_numpy(value).long().to(loaded.device) for name, value in positions.items()
    }
    input_ids = torch.from_numpy(ids).long().to(loaded.device)
    output = loaded.model.base_model(input_ids=input_ids, use_cache=False, **arguments)
    hidden: torch.Tensor = output.last_hidden_state
    return hidden
