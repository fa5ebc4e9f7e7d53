"""A whole small job: text, passages, a tiny random model with its tokenizer, and a job file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ralm_engine.config import JobConfig, load_job

# A model name that is no file would otherwise be looked up on a hub, with long timeouts.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

_WORDS = [
    "river", "castle", "orbit", "violin", "glacier", "senate", "copper", "thunder", "harbour",
    "lantern", "meadow", "engine", "parliament", "sculpture", "volcano", "telescope",
]  # fmt: skip

JOB = """\
[input]
path = "stream.txt"

[model]
name = "model"

[passages]
path = "passages.jsonl"

[retrieval]
k = 4
query_length = 12

[window]
max_length = 64
max_passage_length = 24

[rank]
lookback = 6

[batch]
max_tokens = 512

[run]
executor = "inline"
shard_strides = 8
"""


def sentences(rng: np.random.Generator, count: int) -> str:
    """Text with repeated themes, so that BM25 finds some passages again and again."""
    lines = []
    for _ in range(count):
        words = rng.choice(_WORDS, size=int(rng.integers(4, 9)))
        lines.append("The " + " ".join(words.tolist()) + ".")
    return " ".join(lines)


def write_model(folder: Path, text: str) -> None:
    """A LLaMA of 2 layers with random weights and a byte-level BPE tokenizer trained on `text`."""
    import tokenizers
    import torch
    import transformers

    backend = tokenizers.ByteLevelBPETokenizer()
    backend.train_from_iterator([text], vocab_size=400, special_tokens=["<|endoftext|>"])
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)  # else predictions are nearly uniform and hide errors
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    ).save_pretrained(folder)


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the small job; tests write runs of their own beside them."""
    import json

    rng = np.random.default_rng(11)
    folder = tmp_path_factory.mktemp("job")
    passages = [{"id": f"p{i}", "title": f"T{i}", "text": sentences(rng, 3)} for i in range(60)]
    passages[7]["text"] = passages[3]["text"]
    passages[7]["title"] = passages[3]["title"]
    lines = [json.dumps(passage) + "\n" for passage in passages]
    (folder / "passages.jsonl").write_text("".join(lines), encoding="utf-8")
    text = sentences(rng, 45)
    (folder / "stream.txt").write_text(text, encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    write_model(folder / "model", text + "".join(lines))
    return folder


@pytest.fixture
def job(job_folder: Path, tmp_path: Path) -> Callable[..., JobConfig]:
    """Loads the job with overrides; its run goes to a directory of the test."""

    def load(*overrides: str, out: str = "run") -> JobConfig:
        return load_job(
            job_folder / "job.toml", overrides=[f"run.out={tmp_path / out}", *overrides]
        )

    return load
