"""Streams: what is evaluated, and the file that holds it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ralm_engine.errors import InputError
from ralm_engine.text import stream_store
from ralm_engine.text.streams import (
    InputConfig,
    StreamStore,
    TextStream,
    read_streams,
    write_streams,
)
from ralm_engine.text.tokenizer import TextTokenizer


@pytest.fixture
def tokenizer(byte_tokenizer):
    return TextTokenizer(byte_tokenizer)


def jsonl(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def streams_of(*texts):
    return [TextStream(f"s{i}", text, (f"d{i}",)) for i, text in enumerate(texts)]


def test_concat_joins_documents_with_the_separator(tmp_path):
    """Fails if a title enters the text, an empty document leaves a separator, or order is lost."""
    first = jsonl(tmp_path / "c.jsonl", {"id": "a", "title": "T", "text": "x"}, {"text": ""})
    second = tmp_path / "b.txt"
    second.write_text("y\n")
    (stream,) = read_streams(InputConfig(path=(first, str(second)), separator=" | "))
    assert stream == TextStream("c", "x | y\n", ("a", "b"))


def test_single_text_is_untouched(tmp_path):
    """Fails if one file alone gains or loses a character."""
    path = tmp_path / "wiki.raw.txt"
    path.write_text("\n = A = \n")
    (stream,) = read_streams(InputConfig(path=str(path)))
    assert stream == TextStream("wiki.raw", "\n = A = \n", ("wiki.raw",))


def test_document_streams_have_unique_names_and_keep_empty_ones(tmp_path):
    """Fails if two streams share a name, or an empty document vanishes (probe 1)."""
    records = [{"id": "a", "text": "1"}, {"id": "a", "text": ""}, {"id": "a-2", "text": "3"}]
    path = jsonl(tmp_path / "c.jsonl", *records, {"id": "a", "text": "4"}, {"text": "5"})
    streams = list(read_streams(InputConfig(path=path, streams="document")))
    assert [stream.stream_id for stream in streams] == ["a", "a-2", "a-2-2", "a-3", "c-4"]
    assert [stream.text for stream in streams] == ["1", "", "3", "4", "5"]
    assert [stream.sources for stream in streams] == [("a",), ("a",), ("a-2",), ("a",), ("c-4",)]


@pytest.mark.parametrize("mode", ["concat", "document"])
def test_input_without_text_names_the_files(tmp_path, mode):
    """Fails if an empty corpus starts a run or the error does not say which file."""
    first = jsonl(tmp_path / "c.jsonl", {"text": ""})
    second = jsonl(tmp_path / "d.jsonl")
    with pytest.raises(InputError) as caught:
        list(read_streams(InputConfig(path=(first, second), streams=mode)))
    assert str(caught.value) == f"the input holds no text: {first}, {second}"


def test_store_gives_back_text_tokens_and_offsets(tmp_path, tokenizer):
    """Fails if anything differs from encoding the text again, in one batch or in several."""
    texts = ["", " ", "abc", "\U0001f600 \u6f22\n\x00", "d  e"]
    store = write_streams(streams_of(*texts), tokenizer, tmp_path / "s.arrow")
    assert store.num_streams == 5
    assert store.stream_ids == ["s0", "s1", "s2", "s3", "s4"]
    assert store.num_tokens.tolist() == [tokenizer.encode(text).num_tokens for text in texts]
    for i, text in enumerate(texts):
        tokens = tokenizer.encode(text)
        assert store.text(i) == text
        assert store.sources(i) == (f"d{i}",)
        np.testing.assert_array_equal(store.token_ids(i), tokens.token_ids)
        assert store.token_ids(i).dtype == np.int32
        begin, end = store.offsets(i)
        np.testing.assert_array_equal(begin, tokens.begin)
        np.testing.assert_array_equal(end, tokens.end)
    assert store.tokenizer_fingerprint == tokenizer.fingerprint


def test_tokens_are_mapped_not_copied(tmp_path, tokenizer):
    """Fails if reading a long stream's tokens copies them into every process."""
    store = write_streams(streams_of("abc" * 1000), tokenizer, tmp_path / "s.arrow")
    first, second = store.token_ids(0), store.token_ids(0)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable


def test_streams_cross_batches(tmp_path, tokenizer, monkeypatch):
    """Fails if a stream is looked up in the wrong batch, or batching changes the hash."""
    texts = [f"text {i}" for i in range(7)]
    whole = write_streams(streams_of(*texts), tokenizer, tmp_path / "a.arrow")
    monkeypatch.setattr(stream_store, "_BATCH_STREAMS", 3)
    cut = write_streams(streams_of(*texts), tokenizer, tmp_path / "b.arrow")
    assert [cut.text(i) for i in range(7)] == texts
    assert [cut.token_ids(i).tolist() for i in range(7)] == [
        whole.token_ids(i).tolist() for i in range(7)
    ]
    assert cut.content_hash == whole.content_hash


def test_counts_are_words_single_spaces_and_bytes(tmp_path, tokenizer):
    """Fails if a denominator of the published perplexities is another (probe 6)."""
    store = write_streams(streams_of("a  b\nc", "\u00e9"), tokenizer, tmp_path / "s.arrow")
    first, second = store.counts(0), store.counts(1)
    assert (first.words, first.spaces, first.bytes) == (3, 2, 6)
    assert (second.words, second.spaces, second.bytes) == (1, 0, 2)


def test_content_hash_sees_names_and_texts(tmp_path, tokenizer):
    """Fails if another input keeps the hash that resuming compares."""
    variants = [
        [TextStream("a", "xy", ())],
        [TextStream("b", "xy", ())],
        [TextStream("a", "xz", ())],
        [TextStream("a", "x", ()), TextStream("a", "y", ())],
    ]
    hashes = {
        write_streams(variant, tokenizer, tmp_path / f"{i}.arrow").content_hash
        for i, variant in enumerate(variants)
    }
    assert len(hashes) == 4


def test_limit_cuts_tokens_and_the_text_they_cover(tmp_path, tokenizer):
    """Fails if a trial counts the words of text that it does not score."""
    cut = write_streams(
        streams_of("ab cd ef", "a"), tokenizer, tmp_path / "s.arrow", limit_tokens=4
    )
    assert cut.num_tokens.tolist() == [4, 1]
    assert cut.text(0) == "ab c"
    assert cut.counts(0).words == 2


def test_one_token_is_legal_and_none_is_not(tmp_path, tokenizer):
    """Fails if a one-token text is refused (probe 2), or an input without tokens is not."""
    assert write_streams(streams_of("a"), tokenizer, tmp_path / "s.arrow").num_tokens.tolist() == [
        1
    ]
    with pytest.raises(InputError, match=r"no tokens to score \(streams: s0, s1\)"):
        write_streams(streams_of("", ""), tokenizer, tmp_path / "t.arrow")
    assert not (tmp_path / "t.arrow").exists()


def test_cut_off_file_is_an_error(tmp_path, tokenizer):
    """Fails if a stream file that was not written to its end is opened."""
    path = tmp_path / "s.arrow"
    write_streams(streams_of("abc"), tokenizer, path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"stream file .*s\.arrow is unfinished or damaged"):
        StreamStore.open(path)


def test_bad_configuration_is_named():
    """Fails if a senseless value is accepted."""
    with pytest.raises(InputError, match="limit_tokens = -1"):
        InputConfig(path="x", limit_tokens=-1)
    with pytest.raises(InputError, match="path is empty"):
        InputConfig(path=("x", ""))
