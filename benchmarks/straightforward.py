"""The baseline of the scoring benchmarks: padded rows, the stock model, full logits, run by run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ralm_engine.jobs.prepare import Inputs
from ralm_engine.lm.models import LoadedModel
from ralm_engine.ralm.retrieve import RetrievedShard, ShardRetriever
from ralm_engine.ralm.rows import BASELINE
from ralm_engine.ralm.shards import Shard, Span

LOOKBACK = 16
STRIDE = 4


@dataclass
class Case:
    """One window length: prepared inputs, and the strides that are scored in turns."""

    inputs: Inputs
    retriever: ShardRetriever

    @property
    def max_length(self) -> int:
        """Tokens per row."""
        return self.inputs.spec.cfg.window.max_length

    def retrieved(self, first_stride: int, num_strides: int) -> RetrievedShard:
        """Some consecutive strides with their candidates; no warm-up."""
        span = Span(stream=0, first_stride=first_stride, num_strides=num_strides, warmup=False)
        return self.retriever.retrieve(Shard(part=0, spans=(span,)))


class Straightforward:
    """The stock model, a padded batch of rows per stride, full logits."""

    def __init__(self, loaded: LoadedModel, case: Case) -> None:
        self._model, self._case = loaded.model, case
        self._windows = case.inputs.spec.windows

    def _rows(self, shard: RetrievedShard, candidates: list[int]) -> list[np.ndarray]:
        """[passage; context; target] of each candidate; BASELINE has no passage."""
        found = shard.blocks[0]
        block = found.block
        t, end = self._windows.span(block.first_stride, block.num_tokens)
        rows = []
        for rank in candidates:
            passage = np.zeros(0, dtype=np.int32)
            if rank != BASELINE:
                passage = shard.passage_tokens[int(found.candidates.passage_QK[0, rank])]
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
        shard = self._case.retrieved(stride, 1)
        everyone = list(range(int(shard.blocks[0].candidates.count_Q[0])))
        none = self._nll(self._rows(shard, [BASELINE]), STRIDE)[0]
        first = self._nll(self._rows(shard, [0]), STRIDE)[0]
        rank = self._nll(self._rows(shard, everyone), LOOKBACK + STRIDE)[:, :LOOKBACK]
        chosen = int(rank.sum(1).argmin())
        logprob = self._nll(self._rows(shard, [chosen]), STRIDE)[0]
        every = self._nll(self._rows(shard, everyone), STRIDE)
        oracle = every[int(every.sum(1).argmin())]
        return {"none": none, "first": first, "logprob": logprob, "oracle": oracle}
