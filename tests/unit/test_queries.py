"""Query texts: cut by offsets, whole characters, exactly as they stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.retrieval.queries import query_texts
from ralm_engine.text.tokenizer import TextTokenizer


def queries_of(tokenizer, text, positions, length):
    tokens = TextTokenizer(tokenizer).encode(text)
    return query_texts(text, tokens.begin, tokens.end, positions, query_length=length)


def test_last_tokens_before_each_position(byte_tokenizer):
    """Fails if a position is off by one, or outer spaces are stripped."""
    assert queries_of(byte_tokenizer, "ab cd", [0, 1, 2, 3, 5], 2) == ["", "a", "ab", "b ", "cd"]
    assert queries_of(byte_tokenizer, "ab", np.array([2]), 32) == ["ab"]


@given(st.text(min_size=1, max_size=40), st.integers(1, 9))
def test_query_is_a_piece_of_the_text(byte_tokenizer, text, length):
    """Fails if a query holds half a character or a replacement of one (probe 9)."""
    tokens = TextTokenizer(byte_tokenizer).encode(text)
    positions = range(tokens.num_tokens + 1)
    queries = query_texts(text, tokens.begin, tokens.end, positions, query_length=length)
    assert len(queries) == tokens.num_tokens + 1
    for query in queries[1:]:
        assert query
        assert query in text
    assert queries[0] == ""


@pytest.mark.parametrize("text", ["\U0001f600\U0001f680", "\u6f22\u5b57"])
def test_query_that_ends_or_begins_inside_a_character_takes_all_of_it(byte_tokenizer, text):
    """Fails if a window of one byte token does not give the character it belongs to."""
    tokens = TextTokenizer(byte_tokenizer).encode(text)
    per_character = tokens.num_tokens // 2
    queries = queries_of(byte_tokenizer, text, range(1, tokens.num_tokens + 1), 1)
    assert queries == [text[0]] * per_character + [text[1]] * per_character
