"""Arrow schemas of everything a run writes: names, types, meaning, version.

The version stands in the footer of every Parquet file; readers accept SCHEMA_VERSION and the one
before it. All NLLs are natural-log, float32.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1
VERSION_KEY = b"ralm_engine.schema_version"
WARMUP_STRIDE = -1
"""Stride number of the line that holds a stream's warm-up pass (no retrieval there)."""

STATUS_OK = "ok"
STATUS_NONFINITE = "nonfinite"
STATUS_SKIPPED = "skipped"

RANKER_PREFIX = "ranker_"
"""Extra rankers add one nullable float32 column each, named with this prefix."""

_FLOATS = pa.list_(pa.field("item", pa.float32(), nullable=False))
_INTS = pa.list_(pa.field("item", pa.int32(), nullable=False))


def _field(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"doc": doc})


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


STRIDES = _schema(
    _field("stream_id", pa.string(), "stream the stride belongs to"),
    _field("stride", pa.int32(), "stride number within its stream; -1 is the warm-up pass"),
    _field("target_begin", pa.int64(), "token index of the first scored target in the stream"),
    _field("target_len", pa.int32(), "scored targets; the first token of a stream has none"),
    _field("query_terms", pa.int32(), "white-space words of the query text; 0 without a query"),
    _field("retrieval_status", pa.string(), "ok, no_query_terms, truncated_query or warmup"),
    _field("token_ids", _INTS, "the target tokens, target_len long"),
    _field("baseline_nll", _FLOATS, "NLL of each target without retrieval"),
    _field("baseline_entropy", _FLOATS, "entropy in nats of each prediction without retrieval"),
    _field("context_len", pa.int32(), "stream tokens before target_begin in the baseline row"),
    _field("num_candidates", pa.int32(), "candidate lines of this stride"),
    _field("status", pa.string(), "ok, nonfinite (a NaN or infinity in baseline_nll), skipped"),
)

CANDIDATES = _schema(
    _field("stream_id", pa.string(), "stream the stride belongs to"),
    _field("stride", pa.int32(), "stride number within its stream"),
    _field("rank", pa.int32(), "0-based rank in the retrieved list"),
    _field("passage", pa.int64(), "row of the passage in the passage file"),
    _field("score", pa.float32(), "retrieval score"),
    _field("passage_len", pa.int32(), "passage tokens in the row, after truncation"),
    _field("context_len", pa.int32(), "stream tokens before target_begin in the row"),
    _field("duplicate_of", pa.int32(), "lowest rank of the stride with the same text; -1 if none"),
    _field("target_nll", _FLOATS, "NLL of each target given passage and context"),
    _field("rank_nll", _FLOATS, "NLL of the last prefix tokens given the passage, oldest first",
           nullable=True),
    _field("target_entropy", _FLOATS, "entropy in nats of each prediction", nullable=True),
    _field("target_rank", _INTS, "0-based vocabulary rank of each target, -1 if not finite",
           nullable=True),
    _field("status", pa.string(), "ok, nonfinite, skipped"),
)  # fmt: skip

SUMMARY = _schema(
    _field("metric", pa.string(), "perplexity, bits_per_byte, oracle_at, gap_closed, ..."),
    _field("ranker", pa.string(), "none, first, random, logprob, oracle or ranker_<name>"),
    _field("scope", pa.string(), "all, or a stream id"),
    _field("denominator", pa.string(), "token, word, space, byte; k for oracle_at"),
    _field("value", pa.float64(), "the figure", nullable=True),
    _field("low", pa.float64(), "95% interval, paired bootstrap over strides", nullable=True),
    _field("high", pa.float64(), "95% interval, paired bootstrap over strides", nullable=True),
    _field("count", pa.int64(), "what the figure is divided by"),
)

STREAMS = _schema(
    _field("stream_id", pa.string(), "name of the stream"),
    _field("num_tokens", pa.int64(), "tokens, the unscored first one included"),
    _field("num_words", pa.int64(), "white-space words (str.split)"),
    _field("num_spaces", pa.int64(), "single space characters"),
    _field("num_bytes", pa.int64(), "UTF-8 bytes"),
    _field("status", pa.string(), "ok, or empty for a stream without a scored token"),
)

TIMING = _schema(
    _field("part", pa.int32(), "shard number"),
    _field("num_strides", pa.int64(), "strides in the shard"),
    _field("rows", pa.int64(), "LM rows asked for: strides, candidates and warm-ups"),
    _field("rows_forwarded", pa.int64(), "rows that went through the model, merged ones once"),
    _field("tokens_asked", pa.int64(), "row tokens before anything is shared"),
    _field("tokens_forwarded", pa.int64(), "tokens that went through the model"),
    _field("batches", pa.int64(), "forward passes"),
    _field("retrieve_seconds", pa.float64(), "wall time in the retriever"),
    _field("score_seconds", pa.float64(), "wall time in the model"),
    _field("flop", pa.float64(), "estimated floating-point operations of the forwards"),
    _field("peak_bytes", pa.int64(), "peak resident memory of the scoring worker so far"),
    _field("worker", pa.string(), "host and process that scored the shard"),
    _field("finished_at", pa.float64(), "seconds since 1970-01-01 UTC"),
)

TABLES: dict[str, pa.Schema] = {
    "strides": STRIDES,
    "candidates": CANDIDATES,
    "summary": SUMMARY,
    "streams": STREAMS,
    "timing": TIMING,
}
