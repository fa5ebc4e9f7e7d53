"""Opening a retriever: built when absent, refused when it belongs to something else."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ralm_engine.errors import InputError, MissingDependencyError
from ralm_engine.retrieval import lucene
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.retrieval.factory import open_retriever
from ralm_engine.retrieval.lucene import LuceneHeader, LuceneIndex
from ralm_engine.text.corpus import Document
from ralm_engine.text.passages import build_passages


@pytest.fixture
def passages(tmp_path):
    return build_passages(
        [Document("a", "", "red apple"), Document("b", "", "green pear")], tmp_path / "p.arrow"
    )


@pytest.fixture
def native():
    return pytest.importorskip(
        "ralm_engine.retrieval.native", reason="the native extension is not built"
    )


def lucene_directory(path, passages, **changes):
    """An index directory as far as it can be checked without a JVM."""
    (path / "lucene").mkdir(parents=True)
    (path / "lucene" / "segments_1").write_bytes(b"12345")
    header = LuceneHeader(
        format=lucene.FORMAT,
        format_version=lucene.FORMAT_VERSION,
        analyzer=lucene.ANALYZER,
        passages_hash=passages.content_hash,
        num_passages=passages.num_passages,
        anserini="x.jar",
        files={"segments_1": 5},
    )
    fields = dataclasses.asdict(header) | changes
    (path / "header.json").write_text(json.dumps(fields))
    return RetrievalConfig(engine="lucene", index=str(path))


@pytest.mark.usefixtures("native")
def test_native_index_is_built_once_then_opened(tmp_path, passages):
    """Fails if an absent or empty directory is not filled, or a built index is built again."""
    index = tmp_path / "index"
    index.mkdir()
    cfg = RetrievalConfig(index=str(index))
    calls = []
    for _ in range(2):
        retriever = open_retriever(
            cfg, passages, progress=lambda done, total: calls.append((done, total))
        )
        found = retriever.search(["pear"], 2)
        assert found.passage_QK.tolist() == [[1, -1]]
    assert calls[-1] == (2, 2)
    assert len(calls) == len(set(calls))


@pytest.mark.usefixtures("native")
def test_index_of_changed_passages_is_refused(tmp_path, passages):
    """Fails if passages that changed after indexing are searched (probe 23)."""
    cfg = RetrievalConfig(index=str(tmp_path / "index"))
    open_retriever(cfg, passages)
    changed = build_passages([Document("a", "", "other")], tmp_path / "q.arrow")
    with pytest.raises(InputError) as caught:
        open_retriever(cfg, changed)
    text = str(caught.value)
    for side in (passages, changed):
        assert f"{side.num_passages} with hash {side.content_hash[:12]}" in text


@pytest.mark.usefixtures("native")
def test_index_of_another_engine_is_refused_by_both_names(tmp_path, passages):
    """Fails if one engine opens the other's directory (probe 23)."""
    cfg = RetrievalConfig(index=str(tmp_path / "index"))
    open_retriever(cfg, passages)
    with pytest.raises(InputError, match=r"format is 'native-bm25', this program reads 'lucene-"):
        open_retriever(dataclasses.replace(cfg, engine="lucene"), passages)


def test_directory_of_something_else_is_never_touched(tmp_path, passages):
    """Fails if a directory with a person's files is taken for a place to build in."""
    (tmp_path / "index").mkdir()
    mine = tmp_path / "index" / "thesis.tex"
    mine.write_text("x")
    with pytest.raises(InputError, match=r"index is no index \(Directory not empty\)"):
        open_retriever(RetrievalConfig(index=str(tmp_path / "index")), passages)
    assert mine.read_text() == "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "format_version is 99, this program reads 1"),
        ({"analyzer": "whitespace"}, "analyzer is 'whitespace', this program reads 'anserini-"),
        ({"passages_hash": "f" * 64}, "was built from other passages"),
        ({"files": {"segments_1": 6}}, "segments_1 is 5 where header.json says 6 bytes"),
        ({"files": {"gone": 6}}, "gone is missing where header.json says 6 bytes"),
        ({"surplus": 1}, "is damaged: fields surplus"),
    ],
)
def test_lucene_header_mismatch_names_both_sides(tmp_path, passages, change, message):
    """Fails if an index that does not fit is only noticed by the JVM, or not at all (probe 23)."""
    cfg = lucene_directory(tmp_path / "index", passages, **change)
    with pytest.raises(InputError) as caught:
        open_retriever(cfg, passages)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_damaged_lucene_header_is_named(tmp_path, passages, content):
    """Fails if a cut-off header shows as a traceback."""
    cfg = lucene_directory(tmp_path / "index", passages)
    (tmp_path / "index" / "header.json").write_bytes(content)
    with pytest.raises(InputError, match=r"header\.json is damaged"):
        open_retriever(cfg, passages)


def test_lucene_without_pyserini_fails_at_opening(tmp_path, passages, monkeypatch):
    """Fails if a job only finds out at its first search that Lucene is not installed (probe 24)."""
    cfg = lucene_directory(tmp_path / "index", passages)
    monkeypatch.setattr("ralm_engine.retrieval.java.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="needs the package pyserini"):
        open_retriever(cfg, passages)


def test_lucene_build_refuses_an_occupied_directory(tmp_path, passages):
    """Fails if building overwrites what is there."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x").write_text("x")
    with pytest.raises(InputError, match="is in the way of a new index"):
        LuceneIndex.build(passages, tmp_path / "index")
