"""Fixtures shared by unit tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ralm_engine.schema import CANDIDATES, STREAMS, STRIDES, TIMING, WARMUP_STRIDE


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """What a synthetic run looks like."""

    streams: dict[str, int] = field(default_factory=lambda: {"a": 61, "b": 38})
    warmup: int = 12  # tokens scored in one plain pass per stream; 0 = none
    stride: int = 4
    k: int = 5
    lookback: int = 16
    shard_strides: int = 6
    rankers: tuple[str, ...] = ()
    no_hits: float = 0.1
    seed: int = 0


class SyntheticRun:
    """Tables with the structure of a real run and random figures."""

    def __init__(self, shape: RunShape) -> None:
        self.shape = shape
        self.rng = np.random.default_rng(shape.seed)
        self.strides, self.candidates = self._rows()

    def _rows(self):
        strides, candidates = [], []
        for name, num_tokens in self.shape.streams.items():
            begin = 1
            if self.shape.warmup and num_tokens > 1:
                begin = min(self.shape.warmup, num_tokens)
                strides.append(self._stride(name, WARMUP_STRIDE, 1, begin - 1, 0))
            spans = range(begin, num_tokens, self.shape.stride)
            for number, at in enumerate(spans):
                length = min(self.shape.stride, num_tokens - at)
                hits = 0 if self.rng.random() < self.shape.no_hits else self.shape.k
                hits = hits if self.rng.random() < 0.8 else int(self.rng.integers(0, hits + 1))
                strides.append(self._stride(name, number, at, length, hits))
                candidates += [self._candidate(strides[-1], rank) for rank in range(hits)]
        return strides, candidates

    def _floats(self, count):
        return self.rng.exponential(3.0, count).astype(np.float32)

    def _stride(self, name, number, begin, length, hits):
        status = "warmup" if number < 0 else "ok" if hits else "no_query_terms"
        return {
            "stream_id": name,
            "stride": number,
            "target_begin": begin,
            "target_len": length,
            "query_terms": 7 * (hits > 0),
            "retrieval_status": status,
            "token_ids": self.rng.integers(0, 50000, length).tolist(),
            "baseline_nll": self._floats(length).tolist(),
            "baseline_entropy": self._floats(length).tolist(),
            "context_len": begin,
            "num_candidates": hits,
            "status": "ok",
        }

    def _candidate(self, stride, rank):
        line = {
            "stream_id": stride["stream_id"],
            "stride": stride["stride"],
            "rank": rank,
            "passage": int(self.rng.integers(0, 1000)),
            "score": float(20.0 - rank + self.rng.random()),
            "passage_len": 40,
            "context_len": stride["context_len"],
            "duplicate_of": -1,
            "target_nll": self._floats(stride["target_len"]).tolist(),
            "rank_nll": self._floats(min(self.shape.lookback, stride["target_begin"] - 1)).tolist(),
            "target_entropy": None,
            "target_rank": None,
            "status": "ok",
        }
        for ranker in self.shape.rankers:
            line[f"ranker_{ranker}"] = float(self.rng.normal())
        return line

    def shards(self, size=None):
        """One {table name: table} per shard of `size` strides."""
        size = size or self.shape.shard_strides
        found = []
        for begin in range(0, max(len(self.strides), 1), size):
            strides = self.strides[begin : begin + size]
            keys = {(line["stream_id"], line["stride"]) for line in strides}
            lines = [c for c in self.candidates if (c["stream_id"], c["stride"]) in keys]
            found.append(
                {
                    "strides": pa.Table.from_pylist(strides, schema=STRIDES),
                    "candidates": pa.Table.from_pylist(lines, schema=self._candidate_schema()),
                    "timing": timing(len(found), len(strides)),
                }
            )
        return found

    def _candidate_schema(self):
        schema = CANDIDATES
        for ranker in self.shape.rankers:
            schema = schema.append(pa.field(f"ranker_{ranker}", pa.float32()))
        return schema

    def stream_table(self):
        """The streams table: 3 words, 2 spaces and 5 bytes per token, give or take."""
        lines = [
            {
                "stream_id": name,
                "num_tokens": count,
                "num_words": 3 * count,
                "num_spaces": 2 * count,
                "num_bytes": 5 * count,
                "status": "ok" if count > 1 else "empty",
            }
            for name, count in self.shape.streams.items()
        ]
        return pa.Table.from_pylist(lines, schema=STREAMS)


def timing(part, num_strides):
    """A timing line."""
    numbers = dict.fromkeys(
        ("rows", "rows_forwarded", "tokens_asked", "tokens_forwarded", "batches"), 10
    )
    seconds = {"retrieve_seconds": 0.5, "score_seconds": 1.5, "flop": 1e9}
    line = {"part": part, "num_strides": num_strides, **numbers, **seconds}
    line |= {"peak_bytes": 1 << 30, "worker": "w", "finished_at": 1.0}
    return pa.Table.from_pylist([line], schema=TIMING)


@pytest.fixture(scope="session")
def synthetic():
    """Builds a SyntheticRun: `synthetic(k=3, streams={"a": 40})`."""
    return lambda **shape: SyntheticRun(RunShape(**shape))


@pytest.fixture(scope="session")
def write_run():
    """Writes a SyntheticRun as a run directory: `write_run(path, synthetic_run)`; finished."""
    from ralm_engine.store.rundir import RunDirectory

    def write(path, source, *, size=None, skip=(), finish=True):
        shards = source.shards(size)
        identity = {"retrieval": {"k": source.shape.k}}
        manifest = {"num_shards": len(shards), "seed": 0, "code_revision": "abc"}
        with RunDirectory.create_or_resume(
            path, identity=identity, manifest=manifest, config_toml="[run]\n"
        ) as run:
            run.write_table("streams", source.stream_table())
            for part, tables in enumerate(shards):
                if part not in skip:
                    run.commit_shard(part, tables)
            if finish:
                run.finish()
        return path

    return write


@pytest.fixture(scope="session")
def byte_tokenizer():
    """One token a byte, plus the special token <|endoftext|>. Copy it before changing it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return tokenizer
