"""What a retrieval or scoring worker needs, small enough to be sent to it, and how it starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from ralm_engine.config import JobConfig
from ralm_engine.ralm.retrieve import RetrievedShard, ShardRetriever
from ralm_engine.ralm.rows import LaidOut
from ralm_engine.ralm.score import ShardScorer, lay_out
from ralm_engine.ralm.windows import Windows
from ralm_engine.retrieval.factory import open_retriever
from ralm_engine.retrieval.protocol import PassageMask
from ralm_engine.text.passages import PassageStore
from ralm_engine.text.streams import StreamStore
from ralm_engine.text.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One job, as its workers see it. Files are opened where the worker runs.

    Attributes:
        cfg: the job.
        tokenizer_json: the model's tokenizer, serialised.
        streams_file, passages_file: memory-mapped by every worker of a node.
        windows: the job's windows.
        bos: token before every row, or None.
        excluded: passages never returned for any stream.
        excluded_own: passages never returned for one stream, one mask each; empty without.
    """

    cfg: JobConfig
    tokenizer_json: str
    streams_file: Path
    passages_file: Path
    windows: Windows
    bos: int | None
    excluded: PassageMask | None
    excluded_own: tuple[PassageMask, ...]

    def lay_out(self, retrieved: RetrievedShard) -> LaidOut:
        """Rows and segments of a shard, as the scoring workers lay them out."""
        merge = not self.cfg.run.deterministic
        return lay_out(retrieved, self.windows, self.bos, merge=merge)

    def shard_retriever(self) -> ShardRetriever:
        """Opens text, passages and index for retrieval."""
        passages = PassageStore.open(self.passages_file)
        return ShardRetriever(
            streams=StreamStore.open(self.streams_file),
            passages=passages,
            retriever=open_retriever(self.cfg.retrieval, passages),
            tokenizer=TextTokenizer(Tokenizer.from_str(self.tokenizer_json)),
            windows=self.windows,
            query_length=self.cfg.retrieval.query_length,
            k=self.cfg.retrieval.k,
            excluded=self.excluded,
            excluded_own=self.excluded_own,
        )

    def shard_scorer(self, *, num_threads: int | None = None) -> ShardScorer:
        """Loads the model for scoring.

        Args:
            num_threads: CPU threads of the model; None leaves torch's choice. Deterministic jobs
                use one, whatever is asked, since sums depend on how they are split.
        """
        import torch

        from ralm_engine.lm.cost import cost_of
        from ralm_engine.lm.models import load_model
        from ralm_engine.lm.scorer import Scorer

        if self.cfg.run.deterministic:
            num_threads = 1
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch demands it on CUDA
            torch.use_deterministic_algorithms(mode=True)
        if num_threads:
            torch.set_num_threads(num_threads)
        loaded = load_model(self.cfg.model)
        scorer = Scorer(
            loaded,
            attention=self.cfg.model.attention,
            max_tokens=self.cfg.batch.max_tokens,
            max_length=self.cfg.window.max_length,
            one_row_per_batch=self.cfg.run.deterministic,
        )
        return ShardScorer(
            scorer=scorer,
            windows=self.windows,
            bos=self.bos,
            merge=not self.cfg.run.deterministic,
            cost=cost_of(loaded.model.config),
        )


def threads_per_worker(num_workers: int) -> int:
    """CPU threads of each of several scoring workers on this machine."""
    return max(1, len(os.sched_getaffinity(0)) // num_workers)
