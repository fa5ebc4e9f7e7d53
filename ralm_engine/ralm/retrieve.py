"""One shard: strides -> queries -> candidates -> passage tokens. Runs on a CPU, before scoring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ralm_engine.lm.requests import Int32Array
from ralm_engine.ralm.rows import StreamBlock
from ralm_engine.ralm.shards import Shard, Span
from ralm_engine.ralm.windows import Windows
from ralm_engine.retrieval.filters import union
from ralm_engine.retrieval.protocol import Candidates, PassageMask, Retriever
from ralm_engine.retrieval.queries import query_texts
from ralm_engine.text.passages import PassageStore
from ralm_engine.text.streams import StreamStore
from ralm_engine.text.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedBlock:
    """The strides of one stream with their candidates.

    Attributes:
        block: the strides and their tokens.
        candidates: of its J strides; None where J is 0.
        query_terms: white-space words of each query.
    """

    block: StreamBlock
    candidates: Candidates | None
    query_terms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedShard:
    """All that scoring a shard needs.

    Attributes:
        part: number of the shard.
        blocks: one per span.
        passage_tokens: truncated tokens of every passage that occurs, by passage row.
        duplicate_of: canonical row of those that repeat an earlier passage's text.
        seconds: wall time of the retrieval.
    """

    part: int
    blocks: tuple[RetrievedBlock, ...]
    passage_tokens: dict[int, Int32Array]
    duplicate_of: dict[int, int]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRetriever:
    """Retrieves for whole shards.

    Attributes:
        streams, passages, retriever, tokenizer: what is read.
        windows: the job's windows.
        query_length: last prefix tokens whose text is the query.
        k: candidates per stride.
        excluded: passages never returned for any stream.
        excluded_own: passages never returned for one stream, one mask each; empty without.
    """

    streams: StreamStore
    passages: PassageStore
    retriever: Retriever
    tokenizer: TextTokenizer
    windows: Windows
    query_length: int
    k: int
    excluded: PassageMask | None
    excluded_own: Sequence[PassageMask]

    def retrieve(self, shard: Shard) -> RetrievedShard:
        """Strides -> queries -> candidates -> passage tokens."""
        began = time.perf_counter()
        blocks = tuple(self._block(span) for span in shard.spans)
        rows = sorted(
            {
                int(row)
                for block in blocks
                if block.candidates is not None
                for row in block.candidates.passage_QK[block.candidates.passage_QK >= 0]
            }
        )
        tokens = self.tokenizer.encode_batch(
            [self.passages.contents(row) for row in rows],
            max_length=self.windows.cfg.max_passage_length,
        )
        canonical = self.passages.duplicate_of
        return RetrievedShard(
            part=shard.part,
            blocks=blocks,
            passage_tokens=dict(zip(rows, tokens, strict=True)),
            duplicate_of={row: int(canonical[row]) for row in rows if canonical[row] >= 0},
            seconds=time.perf_counter() - began,
        )

    def _block(self, span: Span) -> RetrievedBlock:
        block = stream_block(self.streams, span, self.windows)
        if not span.num_strides:
            return RetrievedBlock(block=block, candidates=None, query_terms=())
        begin, end = self.streams.offsets(span.stream)
        positions = [
            self.windows.span(span.first_stride + j, block.num_tokens)[0]
            for j in range(span.num_strides)
        ]
        queries = query_texts(
            self.streams.text(span.stream), begin, end, positions, query_length=self.query_length
        )
        own = self.excluded_own[span.stream] if self.excluded_own else None
        mask = union(self.excluded, own)
        return RetrievedBlock(
            block=block,
            candidates=self.retriever.search(queries, self.k, exclude=mask),
            query_terms=tuple(len(query.split()) for query in queries),
        )


def stream_block(streams: StreamStore, span: Span, windows: Windows) -> StreamBlock:
    """Copies the tokens a span's rows can touch out of the stream file."""
    num_tokens = int(streams.num_tokens[span.stream])
    tokens = streams.token_ids(span.stream)
    if span.num_strides:
        first, _ = windows.span(span.first_stride, num_tokens)
        _, end = windows.span(span.first_stride + span.num_strides - 1, num_tokens)
    else:
        first, end = 0, windows.warmup_end(num_tokens)
    base = 0 if span.warmup else windows.left_cut(first, 0)
    return StreamBlock(
        stream_id=streams.stream_id(span.stream),
        num_tokens=num_tokens,
        token_base=base,
        tokens=tokens[base:end].copy(),
        first_stride=span.first_stride,
        num_strides=span.num_strides,
        warmup=span.warmup,
    )
