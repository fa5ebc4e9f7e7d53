"""A small synthetic run for the report's tests: real prose, invented numbers, every odd case.

Loaded by path (pytest's importlib mode has no package for tests). Nothing here needs a model: a
stride's NLLs come from a seeded generator, and a passage lowers them where it shares words with
the target, so that the report shows gains where a reader would expect them.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from ralm_engine import schema
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.text.corpus import Document
from ralm_engine.text.passage_builder import build_passages
from ralm_engine.text.passages import PassageStore
from ralm_engine.text.stream_store import StreamStore, write_streams
from ralm_engine.text.streams import TextStream
from ralm_engine.text.tokenizer import TextTokenizer

HOSTILE = "<script>window.hacked = 1; alert(1)</script> & </script><!-- <b>bold</b> \u2028 end"
HOSTILE_TITLE = 'Angle <img src=x onerror="window.hacked = 1"> brackets'

ARTICLES = {
    "lighthouses": (
        "A lighthouse warns ships of rocks and shoals. The lamp of an early lighthouse burned wood "
        "or coal in an open basket, and keepers carried fuel up the stairs by night. In the "
        "eighteenth century oil lamps with hollow wicks took their place. Augustin Fresnel "
        "proposed in 1822 a lens of concentric prisms that bends almost all the light of a single "
        "lamp into one beam. A first order Fresnel lens stands taller than a man and can be seen "
        "from more than twenty miles away. Each lighthouse shows its own pattern of flashes, the "
        "characteristic, so that a sailor who counts the seconds of darkness knows which tower he "
        "sees.\n\nThe tower at Eddystone has been built four times. The first was washed away in "
        "the great storm of 1703 together with its builder; the third, by John Smeaton, was "
        "dovetailed out of granite like the trunk of an oak. Most towers are automatic today. "
        "Solar panels charge a battery, and a diode \U0001f4a1 of a few watts does what a fire "
        "did. \u706f\u53f0 means lighthouse.\n"
    ),
    "bread": (
        "Sourdough rises without baker's yeast. A starter of flour and water is left to ferment "
        "until wild yeasts and lactic acid bacteria settle in it. The bacteria make the dough "
        "acid, and the acid keeps other microbes away. Bakers feed the starter every day with "
        "fresh flour. When the dough has doubled, it is folded, shaped and left to rest in a "
        "basket, then baked on a hot stone with steam. Steam keeps the crust soft for the first "
        "minutes, so that the loaf can open along the cut. Rye flour holds little gluten; its "
        "dough needs the acid of a sourdough, because enzymes would otherwise turn the starch "
        "into sugar and the crumb would stay wet.\n"
    ),
}

PASSAGES = [
    ("Fresnel lens", "A Fresnel lens is a lens of concentric prisms, proposed by Augustin Fresnel "
     "in 1822 for the lamps of a lighthouse. It bends almost all the light of a lamp into one "
     "beam that can be seen from more than twenty miles away."),
    ("Eddystone Lighthouse", "The tower at Eddystone has been built four times. The first was "
     "lost in the great storm of 1703. John Smeaton built the third out of granite blocks that "
     "were dovetailed, and took the trunk of an oak as his model."),
    ("Light characteristic", "The characteristic of a lighthouse is its pattern of flashes. A "
     "sailor counts the seconds of darkness between two flashes and finds the tower in the list "
     "of lights."),
    ("Argand lamp", "The Argand lamp burned oil with a hollow wick that let air pass inside and "
     "outside of the flame. It took the place of candles and of open fires in the eighteenth "
     "century."),
    ("Sourdough", "Sourdough rises by wild yeasts and lactic acid bacteria. A starter of flour "
     "and water ferments for some days; bakers feed it with fresh flour every day. The acid keeps "
     "other microbes away."),
    ("Rye bread", "Rye flour holds little gluten. Without the acid of a sourdough, enzymes turn "
     "its starch into sugar and the crumb stays wet."),
    ("Steam oven", "Professional ovens add steam in the first minutes. Steam keeps the crust soft "
     "so that the loaf opens along the cut instead of tearing at the side."),
    ("Granite", "Granite is a hard rock of quartz, feldspar and mica. It has been a building "
     "stone since antiquity, for harbours, bridges and the kerbs of streets."),
    ("Chess opening", "An opening is the first stage of a game of chess. Players develop their "
     "pieces, fight for the middle of the board and bring the king into safety."),
    ("Great Storm of 1703", "The storm struck the south of the country in November 1703. It sank "
     "ships in harbour, tore lead from roofs, and washed the first tower on its rocks away "
     "together with the builder."),
    (HOSTILE_TITLE, HOSTILE),
    ("", "A passage without a title: solar panels charge a battery by day and a diode of a few "
     "watts burns all night."),
]  # fmt: skip


@dataclass(kw_only=True)
class Shape:
    """What the synthetic run looks like."""

    copies: int = 1
    stride: int = 4
    k: int = 8
    warmup: int = 24
    lookback: int = 16
    query_length: int = 32
    seed: int = 7
    shards: int = 3
    shards_missing: int = 0
    oddities: bool = True
    manifest: dict = field(default_factory=dict)


def tokenizer() -> TextTokenizer:
    """Byte-level BPE trained on the run's own text: common words are one token, and a character
    that the training never merged is one token per byte, as in real models."""
    plain = Tokenizer(BPE())
    plain.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=1600, min_frequency=2, show_progress=False, initial_alphabet=ByteLevel.alphabet()
    )
    ascii_only = [re.sub(r"[^\x00-\x7f]", "", text) for text in ARTICLES.values()]
    plain.train_from_iterator([*ascii_only, *ascii_only], trainer)
    return TextTokenizer(plain)


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]{4,}", text.lower()))


def build(out: Path, shape: Shape | None = None) -> Path:
    """Writes the run directory and, beside it, the passage file; returns the run directory."""
    shape = shape or Shape()
    rng = np.random.default_rng(shape.seed)
    passages = write_passages(out.parent / f"{out.name}-passages.arrow")
    texts = [TextStream(name, text * shape.copies, (name,)) for name, text in ARTICLES.items()]
    streams = write_streams(texts, tokenizer(), out / "streams.arrow")
    strides, candidates = [], []
    for at in range(streams.num_streams):
        one, many = score_stream(streams, at, shape, rng)
        strides += one
        candidates += many
    if shape.oddities:
        add_oddities(strides, candidates)
    commit(out, (strides, candidates), streams, passages, shape)
    return out


def score_stream(
    streams: StreamStore, at: int, shape: Shape, rng: np.random.Generator
) -> tuple[list[dict], list[dict]]:
    name, text = streams.stream_ids[at], streams.text(at)
    begin, end = streams.offsets(at)
    strides = [stride_line(name, -1, 1, shape.warmup - 1, rng, "warmup")]
    candidates = []
    for number, first in enumerate(range(shape.warmup, len(begin), shape.stride)):
        size = min(shape.stride, len(begin) - first)
        line = stride_line(name, number, first, size, rng, "ok")
        target = words_of(text[begin[first] : end[first + size - 1]])
        query = words_of(text[begin[max(0, first - shape.query_length)] : end[first - 1]])
        ranked = sorted(
            range(len(PASSAGES)),
            key=lambda row: (-len(query & words_of(" ".join(PASSAGES[row]))), row),
        )[: shape.k]
        line["num_candidates"] = len(ranked)
        strides.append(line)
        for rank, row in enumerate(ranked):
            shared = len(target & words_of(" ".join(PASSAGES[row])))
            candidates.append(candidate_line(line, rank, row, shared, shape, rng))
    return strides, candidates


def stride_line(
    name: str, number: int, at: int, size: int, rng: np.random.Generator, status: str
) -> dict:
    nll = rng.gamma(1.3, 2.2, size).astype(np.float32)
    return {
        "stream_id": name, "stride": number, "target_begin": at, "target_len": size,
        "query_terms": 20, "retrieval_status": status,
        "token_ids": list(range(at, at + size)), "baseline_nll": nll,
        "baseline_entropy": nll * 0.9, "context_len": at, "num_candidates": 0, "status": "ok",
    }  # fmt: skip


def candidate_line(
    line: dict, rank: int, row: int, shared: int, shape: Shape, rng: np.random.Generator
) -> dict:
    base = line["baseline_nll"]
    pull = 0.55 if shared else 0.0
    nll = np.maximum(0.01, base * (1 - pull) + rng.normal(0.04, 0.35, base.size))
    rank_nll = rng.gamma(1.3, 2.2, shape.lookback) * (1 - 0.12 * shared)
    return {
        "stream_id": line["stream_id"], "stride": line["stride"], "rank": rank, "passage": row,
        "score": 18.0 - 0.9 * rank, "passage_len": 60, "context_len": line["context_len"],
        "duplicate_of": -1, "target_nll": nll.astype(np.float32),
        "rank_nll": rank_nll.astype(np.float32), "target_entropy": (nll * 0.9).astype(np.float32),
        "target_rank": [0] * base.size, "status": "ok",
    }  # fmt: skip


def add_oddities(strides: list[dict], candidates: list[dict]) -> None:
    """A stride without hits, a candidate with a NaN, a duplicate, and a hostile passage first."""
    of = lambda number: [  # noqa: E731
        c for c in candidates if c["stream_id"] == "lighthouses" and c["stride"] == number
    ]
    bare = next(s for s in strides if s["stream_id"] == "lighthouses" and s["stride"] == 3)
    for line in of(3):
        candidates.remove(line)
    bare.update(num_candidates=0, retrieval_status="no_query_terms", query_terms=0)
    broken = of(5)[2]
    broken["target_nll"] = np.array([np.nan, *broken["target_nll"][1:]], dtype=np.float32)
    broken["status"] = "nonfinite"
    of(6)[3]["duplicate_of"] = 1
    hostile = next(row for row, (title, _) in enumerate(PASSAGES) if title == HOSTILE_TITLE)
    of(1)[0]["passage"] = hostile
    of(1)[0]["target_nll"] = np.full(4, 0.02, dtype=np.float32)


def write_passages(path: Path) -> PassageStore:
    documents = [
        Document(id=f"p{row}", title=title, text=text) for row, (title, text) in enumerate(PASSAGES)
    ]
    return build_passages(documents, path)


def config_of(shape: Shape) -> str:
    return f"""
[input]
path = ["articles.jsonl"]
streams = "document"

[model]
name = "synthetic-lm"
dtype = "float32"

[passages]
path = "passages.jsonl"

[retrieval]
engine = "native"
stride = {shape.stride}
query_length = {shape.query_length}
k = {shape.k}

[window]
max_length = 256
max_passage_length = 100
warmup = "reference"
bos = "none"
context_slack = 0

[rank]
lookback = {shape.lookback}
"""


def manifest_of(shape: Shape, streams: StreamStore, passages: PassageStore) -> dict:
    """The entries that jobs write."""
    return {
        "engine_version": "0.1.0",
        "config_hash": "f6" * 32,
        "code_revision": "0123abc",
        "seed": 0,
        "num_shards": shape.shards + shape.shards_missing,
        "hashes": {"model": "a1" * 32, "tokenizer": "b2" * 32, "passages": passages.content_hash,
                   "index": "d4" * 32, "input": streams.content_hash},
        "first_window": streams.token_ids(0)[: shape.warmup].tolist(),
        "passages": {"path": str(passages.path), "num_passages": passages.num_passages},
        "session": {
            "packages": {"torch": "2.13.0", "pyarrow": "26.0.0"},
            "hardware": {"processor": "A processor", "cores": 2, "memory_bytes": 8 << 30,
                         "gpus": []},
        },
        "plan": {"rows": 1500, "tokens_asked": 300_000, "tokens_forwarded": 150_000,
                 "flop": 4.2e13, "seconds": 40.0, "memory_bytes": 2 << 30, "batches": 20,
                 "sampled_strides": 75},
        **shape.manifest,
    }  # fmt: skip


def timing_line(part: int, strides: int) -> dict:
    return {
        "part": part, "num_strides": strides, "rows": strides * 17,
        "rows_forwarded": strides * 9, "tokens_asked": strides * 1800,
        "tokens_forwarded": strides * 800, "batches": max(1, strides // 8),
        "retrieve_seconds": 0.4, "score_seconds": 12.5, "flop": strides * 2.1e11,
        "peak_bytes": 1 << 31, "worker": "host:1", "finished_at": 1.8e9 + 15.0 * part,
    }  # fmt: skip


def commit(
    out: Path,
    lines: tuple[list[dict], list[dict]],
    streams: StreamStore,
    passages: PassageStore,
    shape: Shape,
) -> None:
    strides, candidates = lines
    with RunDirectory.create_or_resume(
        out,
        identity={"retrieval": {"k": shape.k}},
        manifest=manifest_of(shape, streams, passages),
        config_toml=config_of(shape),
    ) as run:
        cuts = np.linspace(0, len(strides), shape.shards + 1).astype(int)
        keys = {(s["stream_id"], s["stride"]): at for at, s in enumerate(strides)}
        places = np.array([keys[c["stream_id"], c["stride"]] for c in candidates])
        for part, (low, high) in enumerate(itertools.pairwise(cuts)):
            mine = [c for c, at in zip(candidates, places, strict=True) if low <= at < high]
            tables = {
                "strides": pa.Table.from_pylist(strides[low:high], schema.STRIDES),
                "candidates": pa.Table.from_pylist(mine, schema.CANDIDATES),
                "timing": pa.Table.from_pylist([timing_line(part, int(high - low))], schema.TIMING),
            }
            run.commit_shard(part, tables)
        found = [stream_line(streams, at) for at in range(streams.num_streams)]
        run.write_table("streams", pa.Table.from_pylist(found, schema.STREAMS))
        run.finish()


def stream_line(streams: StreamStore, at: int) -> dict:
    counts = streams.counts(at)
    return {
        "stream_id": streams.stream_ids[at], "num_tokens": int(streams.num_tokens[at]),
        "num_words": counts.words, "num_spaces": counts.spaces, "num_bytes": counts.bytes,
        "status": "ok",
    }  # fmt: skip
