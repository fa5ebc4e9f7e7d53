"""600 strided queries searched by Lucene elsewhere: the same hits and scores, by both engines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ralm_engine.errors import MissingDependencyError
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.retrieval.factory import open_retriever
from ralm_engine.retrieval.java import find_anserini, find_java_home
from ralm_engine.retrieval.lucene import LuceneIndex
from ralm_engine.text.passages import PassagesConfig, ensure_passages

pytestmark = pytest.mark.slow

# Anserini rounds to 4 decimals and lowers ties by 1e-6 each: half a unit plus 16 ties.
SCORE_TOLERANCE = 0.5e-4 + 16e-6


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "golden" / "lucene.json").read_text())


@pytest.fixture(scope="module")
def passages(shared, tmp_path_factory):
    cfg = PassagesConfig(path=str(shared / "data" / "passages-a.jsonl.gz"))
    return ensure_passages(cfg, tmp_path_factory.mktemp("golden") / "passages.arrow")


@pytest.fixture(scope="module")
def lucene(passages, tmp_path_factory):
    try:
        find_java_home()
        find_anserini()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("lucene") / "index"
    LuceneIndex.build(passages, path)
    index = LuceneIndex.open(path, k1=0.9, b=0.4)
    yield index
    index.close()


def ids_agree_outside_ties(rows, scores, expected):
    """Whether rows equal expected except among exactly equal scores.

    Where Lucene's float scores tie, the golden file orders by id as a string and we by number, so
    within a tie, and across the cut at K, the same passages may stand in another order.
    """
    last = scores[-1]
    for score in np.unique(scores):
        ours, theirs = set(rows[scores == score]), set(expected[scores == score])
        if ours != theirs and score != last:
            return False
    return True


def check(found, golden):
    expected = np.array([query["ids"] for query in golden["queries"]])
    scores = np.array([query["scores"] for query in golden["queries"]])
    assert found.passage_QK.shape == expected.shape == (600, 16)
    np.testing.assert_allclose(found.score_QK, scores, rtol=0, atol=SCORE_TOLERANCE)
    for rows, ours, theirs in zip(found.passage_QK, found.score_QK, expected, strict=True):
        assert ids_agree_outside_ties(rows, ours, theirs)
        tied = np.diff(ours) == 0
        assert (np.diff(rows)[tied] > 0).all()
    # 26 of the 600 have a tie that the two orders break differently.
    assert (found.passage_QK == expected).all(axis=1).sum() == 574


def test_row_numbers_are_line_numbers(passages):
    """Fails if the passages are cut, dropped or reordered: every golden id would be off."""
    assert passages.num_passages == 183_597
    assert passages.counts.empty == 0


def test_lucene_reproduces_its_own_hits(golden, lucene):
    """Fails if analysis, BM25, tie order or the way to Java changes one of 9,600 hits."""
    check(lucene.search([query["query"] for query in golden["queries"]], 16), golden)


def test_native_reproduces_lucene(golden, passages, tmp_path):
    """Fails if the factory's default engine ranks otherwise than Lucene on real text."""
    pytest.importorskip("ralm_engine.retrieval.native", reason="the extension is not built")
    index = open_retriever(RetrievalConfig(index=str(tmp_path / "index"), threads=2), passages)
    check(index.search([query["query"] for query in golden["queries"]], 16), golden)


def test_native_scores_equal_lucene_bit_for_bit(golden, passages, lucene, tmp_path):
    """Fails if one float differs, which rounding to 4 decimals would hide."""
    pytest.importorskip("ralm_engine.retrieval.native", reason="the extension is not built")
    index = open_retriever(RetrievalConfig(index=str(tmp_path / "index"), threads=2), passages)
    queries = [query["query"] for query in golden["queries"]]
    ours, theirs = index.search(queries, 64), lucene.search(queries, 64)
    np.testing.assert_array_equal(ours.passage_QK, theirs.passage_QK)
    np.testing.assert_array_equal(ours.score_QK, theirs.score_QK)


def test_the_comparison_notices_one_wrong_hit(golden):
    """Fails if the comparison above has no teeth."""
    expected = np.array(golden["queries"][0]["ids"])
    scores = np.array(golden["queries"][0]["scores"], dtype=np.float32)
    assert ids_agree_outside_ties(expected, scores, expected)
    wrong = expected.copy()
    wrong[3] += 1
    assert not ids_agree_outside_ties(wrong, scores, expected)
