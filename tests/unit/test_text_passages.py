"""The passage file: what is cut, dropped, flagged, hashed, and refused."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.errors import InputError
from ralm_engine.text import passage_builder
from ralm_engine.text.arrow_files import VERSION_KEY
from ralm_engine.text.corpus import Document
from ralm_engine.text.passage_builder import first_equal_row, normalise, split_document
from ralm_engine.text.passages import (
    PassagesConfig,
    PassageStore,
    SplitRule,
    build_passages,
    ensure_passages,
)

STRICT = SplitRule(tolerance=0.0)


def documents(*texts, title=""):
    return [Document(f"d{i}", title, text) for i, text in enumerate(texts)]


@given(st.text(st.sampled_from("ab \n\t\u00a0\u3000é"), max_size=300), st.integers(1, 7))
def test_split_loses_no_word_and_holds_the_limit(text, limit):
    """Fails if a word is lost, doubled, cut or moved, or a passage is too long."""
    rows = list(split_document(Document("d", "T", text), SplitRule(max_words=limit, tolerance=0)))
    words = [word for row in rows for word in row[2].split()]
    assert words == text.split()
    assert all(1 <= len(row[2].split()) <= limit for row in rows)
    assert all(row[2] in text for row in rows)
    assert [row[0] for row in rows] == (
        ["d"] if len(rows) == 1 else [f"d-{i}" for i in range(len(rows))]
    )


def test_short_document_stays_as_it_is():
    """Fails if outer white space or the id of a ready-made passage changes."""
    (row,) = split_document(Document("x-7", "T", "  two\n\nwords "), STRICT)
    assert row == ("x-7", "T", "  two\n\nwords ", "x-7")


@pytest.mark.parametrize(("words", "sizes"), [(100, [100]), (110, [110]), (111, [100, 11])])
def test_ready_made_passages_a_little_over_the_limit_stay_whole(words, sizes):
    """Fails if the default moves the rows of a published 100-word corpus, or spares more."""
    rows = split_document(Document("d", "", "w " * words), SplitRule())
    assert [len(row[2].split()) for row in rows] == sizes


def test_store_gives_back_what_went_in(tmp_path):
    """Fails if any text changes on its way, whatever is in it (probes 20 and 21)."""
    texts = ["a\x00b", "\U0001f600 漢字", "العربية", "x\n\n\ny", "plain"]
    sources = [*documents(*texts), Document("t", "Title", "body"), Document("n", "A\nB", "c\nd")]
    store = build_passages(sources, tmp_path / "p.arrow")
    assert store.num_passages == 7
    assert [store.contents(row) for row in range(5)] == texts
    assert store.contents(5) == "Title\nbody"
    assert store.contents(6) == "A\nB\nc\nd"
    assert store.contents_range(2, 6) == [store.contents(row) for row in range(2, 6)]
    assert store.titles.to_pylist() == ["", "", "", "", "", "Title", "A\nB"]
    assert store.ids.to_pylist() == [source.id for source in sources]
    assert store.sources.to_pylist() == [source.id for source in sources]
    for row in (-1, 7):
        with pytest.raises(IndexError):
            store.contents(row)


def test_rows_cross_batches(tmp_path, monkeypatch):
    """Fails if a row is looked up in the wrong batch."""
    monkeypatch.setattr(passage_builder, "_BATCH_ROWS", 3)
    store = build_passages(documents(*(f"text {i}" for i in range(10))), tmp_path / "p.arrow")
    whole = [f"text {i}" for i in range(10)]
    assert [store.text(row) for row in range(10)] == whole
    for begin in range(11):
        for end in range(begin, 11):
            assert store.contents_range(begin, end) == whole[begin:end]


def test_empty_documents_are_dropped_and_counted(tmp_path):
    """Fails if a passage without a word is kept, or goes unmentioned (probe 1's corpus side)."""
    store = build_passages(documents("", "a", " \n\u3000", "b"), tmp_path / "p.arrow")
    assert store.contents_range(0, 2) == ["a", "b"]
    assert (store.counts.documents, store.counts.empty) == (4, 2)


def test_nothing_but_empty_documents_is_an_error_that_leaves_no_file(tmp_path):
    """Fails if an empty passage file is written, or a half one stays."""
    with pytest.raises(InputError, match=r"2 documents, 2 empty"):
        build_passages(documents("", " "), tmp_path / "p.arrow")
    assert list(tmp_path.iterdir()) == []


def test_duplicates_point_to_the_lowest_row(tmp_path):
    """Fails if equal normalised texts are dropped, or flagged against another row (probe 22)."""
    texts = ["Ab  c", "other", "aB c\n", "\uff21b c", "Other", "unique"]
    store = build_passages(documents(*texts), tmp_path / "p.arrow")
    assert store.num_passages == 6
    np.testing.assert_array_equal(store.duplicate_of, [-1, -1, 0, 0, 1, -1])
    assert store.counts.duplicates == 3


@given(st.lists(st.integers(0, 3), max_size=30))
def test_first_equal_row_agrees_with_a_dictionary(values):
    """Fails if sorting loses the order of rows with equal keys."""
    keys = np.array([[v % 2, v // 2] for v in values], dtype=np.uint64).reshape(-1, 2)
    seen: dict[int, int] = {}
    expected = [seen.setdefault(value, row) for row, value in enumerate(values)]
    expected = [-1 if first == row else first for row, first in enumerate(expected)]
    np.testing.assert_array_equal(first_equal_row(keys), expected)


def test_normalise_is_nfkc_casefold_and_single_spaces():
    """Fails if compatibility forms, case or white space make two texts differ."""
    assert normalise(" Stra\u00dfe\t\ufb01n\u00a0\u2460 ") == "strasse fin 1"


def test_content_hash_sees_ids_titles_texts_and_their_borders(tmp_path):
    """Fails if a change of any field, or text moved across fields, keeps the hash."""
    variants = [
        [Document("a", "t", "xy")],
        [Document("b", "t", "xy")],
        [Document("a", "u", "xy")],
        [Document("a", "t", "xz")],
        [Document("a", "tx", "y")],
        [Document("a", "t", "xy"), Document("a", "t", "xy")],
    ]
    hashes = {
        build_passages(variant, tmp_path / f"{i}.arrow").content_hash
        for i, variant in enumerate(variants)
    }
    assert len(hashes) == len(variants)


def test_content_hash_does_not_depend_on_batches(tmp_path, monkeypatch):
    """Fails if the same passages, batched otherwise, look like others."""
    source = documents(*(f"text {i}" for i in range(9)))
    first = build_passages(source, tmp_path / "a.arrow").content_hash
    monkeypatch.setattr(passage_builder, "_BATCH_ROWS", 2)
    assert build_passages(source, tmp_path / "b.arrow").content_hash == first


@pytest.mark.parametrize("keep", [0, 7, 0.5, -1])
def test_cut_off_file_is_an_error(tmp_path, keep):
    """Fails if a file that was not written to its end is opened (probe 23)."""
    path = tmp_path / "p.arrow"
    build_passages(documents("a", "b"), path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match=r"passage file .*p\.arrow is unfinished or damaged"):
        PassageStore.open(path)


def test_file_of_another_format_or_newer_version_is_refused(tmp_path):
    """Fails if a foreign Arrow file or a newer format is taken for ours (probe 23)."""
    path = tmp_path / "p.arrow"
    with pa.ipc.new_file(str(path), pa.schema([pa.field("text", pa.string())])):
        pass
    with pytest.raises(InputError, match="its format is unnamed, expected"):
        PassageStore.open(path)
    store = build_passages(documents("a"), tmp_path / "q.arrow")
    with pa.ipc.open_file(str(store.path)) as reader:
        batch = reader.get_batch(0)
    newer = batch.schema.with_metadata({**batch.schema.metadata, VERSION_KEY: b"99"})
    with pa.ipc.new_file(str(path), newer) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=newer))
    with pytest.raises(InputError, match="format version 99, this program reads up to 1"):
        PassageStore.open(path)


def test_failed_build_leaves_the_old_file_untouched(tmp_path):
    """Fails if a rebuild that breaks half-way replaces or damages what was there."""
    path = tmp_path / "p.arrow"
    old = build_passages(documents("old"), path).content_hash

    def broken():
        yield Document("d", "", "new")
        raise InputError("broken source")

    with pytest.raises(InputError, match="broken source"):
        build_passages(broken(), path)
    assert PassageStore.open(path).content_hash == old
    assert list(tmp_path.iterdir()) == [path]


def test_ensure_builds_once_and_again_when_a_source_changes(tmp_path):
    """Fails if an unchanged corpus is read again, or a changed one is not."""
    source, out = tmp_path / "c.jsonl", tmp_path / "p.arrow"
    source.write_text(json.dumps({"text": "one"}) + "\n")
    calls = []
    cfg = PassagesConfig(path=str(source))
    first = ensure_passages(cfg, out, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 0)]
    again = ensure_passages(cfg, out, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) == 1
    assert again.content_hash == first.content_hash
    source.write_text(json.dumps({"text": "one"}) + "\n" + json.dumps({"text": "two"}) + "\n")
    assert ensure_passages(cfg, out).num_passages == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": ""}, "path is empty"),
        ({"path": ()}, "path is empty"),
        ({"path": "x", "split_words": 0}, "split_words = 0"),
        ({"path": "x", "split_tolerance": -0.1}, "split_tolerance = -0.1"),
    ],
)
def test_bad_configuration_is_named(keys, message):
    """Fails if a senseless value is accepted."""
    with pytest.raises(InputError, match=message):
        PassagesConfig(**keys)


def test_text_imports_neither_torch_nor_transformers():
    """Fails if the text layer becomes too heavy for retrieval workers and the command line."""
    code = (
        "import sys, ralm_engine.text.passages, ralm_engine.text.streams, "
        "ralm_engine.text.tokenizer; "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
