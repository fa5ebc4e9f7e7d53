"""Exclusion lists: exactly the passages meant, and a word about those that match nothing."""

from __future__ import annotations

import pytest

from ralm_engine.errors import InputError
from ralm_engine.retrieval.filters import (
    exclude_ids,
    exclude_source,
    exclude_sources,
    exclude_titles,
    listed_exclusion,
    union,
)
from ralm_engine.retrieval.protocol import PassageMask
from ralm_engine.text.corpus import Document
from ralm_engine.text.passages import PassagesConfig, build_passages


@pytest.fixture
def passages(tmp_path):
    documents = [
        Document("a", "Apple", "one"),
        Document("b", "Pear", "two"),
        Document("long", "Apple", "w " * 250),  # rows 2, 3, 4
        Document("c", "", "three"),
    ]
    return build_passages(documents, tmp_path / "p.arrow")


def listing(tmp_path, text):
    path = tmp_path / "list.txt"
    path.write_text(text)
    return path


def test_titles_match_whole_lines_exactly(tmp_path, passages):
    """Fails if part of a title, another case, or a passage without title is excluded."""
    found = exclude_titles(passages, listing(tmp_path, "\ufeff Apple \r\n\nAppl\npear\nApple\n"))
    assert found.mask.rows.tolist() == [0, 2, 3, 4]
    assert found.mask.num_passages == 6
    assert found.listed == 3
    assert found.unknown == ("Appl", "pear")


def test_ids_match_passages_not_documents(tmp_path, passages):
    """Fails if an id excludes more than its passage."""
    found = exclude_ids(passages, listing(tmp_path, "long-1\nb\nlong\n"))
    assert found.mask.rows.tolist() == [1, 3]
    assert found.unknown == ("long",)


def test_source_excludes_all_passages_cut_from_it(passages):
    """Fails if a part of the evaluated document can still be retrieved."""
    assert exclude_source(passages, ["long", "nowhere"]).rows.tolist() == [2, 3, 4]
    assert exclude_source(passages, []).rows.tolist() == []


def test_sources_of_many_streams_stay_apart(passages):
    """Fails if one stream's documents are hidden from another stream."""
    streams = [("long",), (), ("c", "a"), ("nowhere", "a"), ("long", "long")]
    masks = exclude_sources(passages, streams)
    assert [mask.rows.tolist() for mask in masks] == [[2, 3, 4], [], [0, 5], [0], [2, 3, 4]]
    assert {mask.num_passages for mask in masks} == {6}
    assert exclude_sources(passages, []) == ()


def test_lists_of_a_job_add_up(tmp_path, passages):
    """Fails if one list hides the other, or no list makes a mask."""
    titles, ids = tmp_path / "titles", tmp_path / "ids"
    titles.write_text("Pear\nNone such\n")
    ids.write_text("c\n")
    assert listed_exclusion(PassagesConfig(path="x"), passages) is None
    cfg = PassagesConfig(path="x", exclude_titles=str(titles), exclude_ids=str(ids))
    found = listed_exclusion(cfg, passages)
    assert found.mask.rows.tolist() == [1, 5]
    assert (found.listed, found.unknown) == (3, ("None such",))


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read .*No such file"), (b"", "lists nothing"), (b"a\xff\n", "line 1: byte")],
)
def test_bad_list_is_an_error(tmp_path, passages, content, message):
    """Fails if a contamination guard that cannot be read is taken for an empty one."""
    path = tmp_path / "list.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        exclude_titles(passages, path)


def test_union_of_masks():
    """Fails if a mask is lost, or nothing becomes an empty mask."""
    first, second = PassageMask.of([3, 1], num_passages=9), PassageMask.of([1, 8], num_passages=9)
    assert union(None, first, second).rows.tolist() == [1, 3, 8]
    assert union(None, None) is None
