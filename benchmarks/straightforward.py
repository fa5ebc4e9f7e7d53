"""The baseline of the scoring benchmarks: padded rows, the stock model, full logits, run by run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ralm_engine.config import JobConfig
from ralm_engine.jobs.prepare import Inputs
from ralm_engine.lm.models import LoadedModel
from ralm_engine.ralm.retrieve import RetrievedShard
from ralm_engine.ralm.rows import BASELINE

LOOKBACK = 16
STRIDE = 4


@dataclass
class Case:
    """One job size, prepared: the same strides for everybody."""

    inputs: Inputs
    retrieved: RetrievedShard
    strides: int

    @property
    def cfg(self) -> JobConfig:
        return self.inputs.spec.cfg


class Straightforward:
    """The stock model, a padded batch of rows per stride, full logits."""

    def __init__(self, loaded: LoadedModel, case: Case) -> None:
        self._model, self._case = loaded.model, case
        self._block = case.retrieved.blocks[0]
        self._windows = case.inputs.spec.windows

    def _rows(self, stride: int, candidates: list[int]) -> list[np.ndarray]:
        """[passage; context; target] of each candidate; BASELINE has no passage."""
        block = self._block.block
        t, end = self._windows.span(stride, block.num_tokens)
        rows = []
        for rank in candidates:
            passage = np.zeros(0, dtype=np.int32)
            if rank != BASELINE:
                row = int(self._block.candidates.passage_QK[stride, rank])
                passage = self._case.retrieved.passage_tokens[row]
            cut = self._windows.left_cut(t, passage.size)
            rows.append(np.concatenate([passage, block.slice(cut, end)]))
        return rows

    def _nll(self, rows: list[np.ndarray], last: int) -> np.ndarray:
        """NLL of the last `last` tokens of every row."""
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        labels = torch.full_like(ids, -100)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : row.size] = torch.from_numpy(row)
            mask[number, : row.size] = 1
            labels[number, row.size - last : row.size] = torch.from_numpy(row[-last:])
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            nll = torch.nn.functional.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]).float(),
                labels[:, 1:].reshape(-1),
                reduction="none",
            ).view(len(rows), -1)
        return np.stack([nll[i, r.size - 1 - last : r.size - 1] for i, r in enumerate(rows)])

    def score(self, stride: int) -> dict[str, np.ndarray]:
        """Target NLLs by ranker, from one separate run each."""
        k = int(self._block.candidates.count_Q[stride])
        everyone = list(range(k))
        none = self._nll(self._rows(stride, [BASELINE]), STRIDE)[0]
        first = self._nll(self._rows(stride, [0]), STRIDE)[0]
        rank = self._nll(self._rows(stride, everyone), LOOKBACK + STRIDE)[:, :LOOKBACK]
        chosen = int(rank.sum(1).argmin())
        logprob = self._nll(self._rows(stride, [chosen]), STRIDE)[0]
        every = self._nll(self._rows(stride, everyone), STRIDE)
        oracle = every[int(every.sum(1).argmin())]
        return {"none": none, "first": first, "logprob": logprob, "oracle": oracle}
