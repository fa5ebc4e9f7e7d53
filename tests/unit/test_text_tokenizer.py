"""Tokens and offsets: plain text only, whole characters, the caller's tokenizer untouched."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from ralm_engine.text.tokenizer import TextTokenizer


@given(st.text(max_size=60))
def test_every_character_is_covered_in_order(byte_tokenizer, text):
    """Fails if offsets leave a character out, run backwards, or cut one (probe 9)."""
    tokens = TextTokenizer(byte_tokenizer).encode(text)
    assert tokens.token_ids.dtype == np.int32
    assert tokens.begin.dtype == tokens.end.dtype == np.int64
    covered = set()
    for begin, end in zip(tokens.begin, tokens.end, strict=True):
        assert 0 <= begin < end <= len(text)
        covered.update(range(begin, end))
    assert covered == set(range(len(text)))
    assert (np.diff(tokens.begin) >= 0).all()


def test_byte_tokens_of_one_character_share_it(byte_tokenizer):
    """Fails if a token carries a part of an emoji or of a CJK character."""
    tokens = TextTokenizer(byte_tokenizer).encode("a\U0001f600\u6f22")
    assert tokens.begin.tolist() == [0, 1, 1, 1, 1, 2, 2, 2]
    assert tokens.end.tolist() == [1, 2, 2, 2, 2, 3, 3, 3]


def test_special_token_in_text_is_plain_text(byte_tokenizer):
    """Fails if user text can make a special token (probe 8), or a BOS is added (probe 7)."""
    special = byte_tokenizer.token_to_id("<|endoftext|>")
    assert special in byte_tokenizer.encode("x<|endoftext|>").ids  # what ours must not do
    text_tokenizer = TextTokenizer(byte_tokenizer)
    tokens = text_tokenizer.encode("x<|endoftext|>")
    assert special not in tokens.token_ids
    assert tokens.num_tokens == len("x<|endoftext|>")
    (batched,) = text_tokenizer.encode_batch(["x<|endoftext|>"], max_length=100)
    np.testing.assert_array_equal(batched, tokens.token_ids)


def test_callers_truncation_and_padding_neither_matter_nor_change(byte_tokenizer):
    """Fails if the passed tokenizer is mutated or its settings leak into ours."""
    plain = TextTokenizer(byte_tokenizer)
    byte_tokenizer = Tokenizer.from_str(byte_tokenizer.to_str())
    byte_tokenizer.enable_truncation(3)
    byte_tokenizer.enable_padding(length=9)
    ours = TextTokenizer(byte_tokenizer)
    assert ours.encode("abcdef").num_tokens == 6
    assert [len(ids) for ids in ours.encode_batch(["ab", "abcdefgh"], max_length=5)] == [2, 5]
    assert byte_tokenizer.truncation["max_length"] == 3
    assert byte_tokenizer.padding["length"] == 9
    assert not byte_tokenizer.encode_special_tokens
    assert ours.fingerprint == plain.fingerprint


def test_fingerprint_is_that_of_the_vocabulary(byte_tokenizer):
    """Fails if two different tokenizers share a fingerprint, or it is no hash of the content."""
    plain = TextTokenizer(byte_tokenizer).fingerprint
    assert plain == hashlib.sha256(byte_tokenizer.to_str().encode()).hexdigest()
    other = Tokenizer.from_str(byte_tokenizer.to_str())
    other.add_tokens(["another"])
    assert TextTokenizer(other).fingerprint != plain


@pytest.mark.parametrize("max_length", [0, 1, 4, 99])
def test_batch_is_the_head_of_each_text(byte_tokenizer, max_length):
    """Fails if a batch differs from one text at a time, or is cut at the wrong end."""
    tokenizer = TextTokenizer(byte_tokenizer)
    texts = ["", "a", "\U0001f600", "longer than most"]
    batch = tokenizer.encode_batch(texts, max_length=max_length)
    for text, ids in zip(texts, batch, strict=True):
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, tokenizer.encode(text).token_ids[:max_length])


def test_head_keeps_ids_and_offsets_together(byte_tokenizer):
    """Fails if one of the three arrays is cut elsewhere."""
    tokens = TextTokenizer(byte_tokenizer).encode("abc").head(2)
    assert (len(tokens.token_ids), tokens.begin.tolist(), tokens.end.tolist()) == (
        2,
        [0, 1],
        [1, 2],
    )
