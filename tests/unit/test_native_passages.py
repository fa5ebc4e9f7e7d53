"""From a file of passages through the passage file to a hit of the native index."""

from __future__ import annotations

import json

import pytest

from ralm_engine.retrieval.native import NativeIndex
from ralm_engine.text.passages import PassagesConfig, ensure_passages

# Titles missing, empty or present; texts with 0 or 3 newlines, inside, at either end.
LINES = (
    {"id": "0", "text": "alpha0 omega0"},
    {"id": "1", "title": "", "text": "alpha1\n\n\nomega1"},
    {"id": "2", "title": "Heading2", "text": "alpha2 omega2"},
    {"id": "3", "title": "Heading3", "text": "alpha3\n\n\nomega3"},
    {"id": "4", "text": "\n\n\nalpha4 omega4"},
    {"id": "5", "title": "Heading5", "text": "alpha5 omega5\n\n\n"},
)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> NativeIndex:
    folder = tmp_path_factory.mktemp("passages")
    source = folder / "passages.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    store = ensure_passages(PassagesConfig(path=str(source)), folder / "passages.arrow")
    assert store.num_passages == len(LINES)
    NativeIndex.build(store, folder / "index")
    return NativeIndex.open(folder / "index", passages_hash=store.content_hash)


@pytest.mark.parametrize("word", ["alpha", "omega"])
def test_words_on_either_side_of_the_newlines_find_their_row(index, word):
    """Fails when newlines or a missing title cut a text or shift the rows (probe 21)."""
    found = index.search([f"{word}{row}" for row in range(len(LINES))], 3)
    assert found.passage_QK[:, 0].tolist() == list(range(len(LINES)))
    assert found.count_Q.tolist() == [1] * len(LINES)


def test_titles_are_searched_where_there_is_one(index):
    """Fails when a title is dropped, or one passage's title reaches its neighbour (probe 21)."""
    found = index.search([f"heading{row}" for row in range(len(LINES))], 3)
    assert found.count_Q.tolist() == [
        int("title" in line and line["title"] != "") for line in LINES
    ]
    assert found.passage_QK[[2, 3, 5], 0].tolist() == [2, 3, 5]
