"""The specification of scoring: one logical row at a time through the stock model, full logits."""

from __future__ import annotations

import numpy as np
import torch

from ralm_engine.lm.models import LoadedModel
from ralm_engine.lm.requests import Int32Array, Requests, Scores


def score_row_by_row(loaded: LoadedModel, requests: Requests) -> Scores:
    """Scores every want from its own unpadded row, with the model's own attention and LM head.

    Only for requests whose rows are plain token sequences (positions 0, 1, 2, ...).

    Complexity: one forward pass and one [row, V] logit tensor per row.
    """
    nll = np.empty(requests.num_wants, dtype=np.float32)
    entropy = np.empty(requests.num_wants, dtype=np.float32)
    rank = np.empty(requests.num_wants, dtype=np.int32)
    for leaf in requests.leaves().tolist():
        begin, end = np.searchsorted(requests.owner_W, [leaf, leaf + 1])
        tokens, predictors = flatten_row(requests, leaf, slice(int(begin), int(end)))
        ids = torch.from_numpy(tokens).long().to(loaded.device)[None]
        with torch.inference_mode():
            logits = loaded.model(input_ids=ids, use_cache=False).logits[0].float()
        log_p = torch.log_softmax(logits[torch.from_numpy(predictors).to(loaded.device)], dim=-1)
        target = torch.from_numpy(requests.target_W[begin:end]).long().to(loaded.device)[:, None]
        chosen = log_p.gather(1, target)
        nll[begin:end] = -chosen[:, 0].cpu().numpy()
        entropy[begin:end] = torch.special.entr(log_p.exp()).sum(-1).cpu().numpy()
        rank[begin:end] = (log_p > chosen).sum(-1).cpu().numpy()
    return Scores(nll_W=nll, entropy_W=entropy, rank_W=rank)


def flatten_row(requests: Requests, leaf: int, wants: slice) -> tuple[Int32Array, Int32Array]:
    """One logical row as plain tokens, and where in it the predicting tokens stand.

    Returns:
        Row tokens, and the predictor position of each want of the slice.
    """
    edges = slice(int(requests.cu_sees_S1[leaf]), int(requests.cu_sees_S1[leaf + 1]))
    parts, start_of, length = [], {}, 0
    for segment, seen in zip(
        requests.sees_E[edges].tolist(), requests.sees_len_E[edges].tolist(), strict=True
    ):
        start_of[segment] = length
        parts.append(requests.tokens(segment)[:seen])
        length += seen
    start_of[leaf] = length
    parts.append(requests.tokens(leaf))
    assert requests.position_S[leaf] == length, "the row is not a plain sequence"
    predictors = [
        start_of[segment] + offset
        for segment, offset in zip(
            requests.predictor_segment_W[wants].tolist(),
            requests.predictor_offset_W[wants].tolist(),
            strict=True,
        )
    ]
    return np.concatenate(parts), np.asarray(predictors, dtype=np.int32)
