"""The native search against its two specifications: the exhaustive scorer and the NumPy twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralm_engine import _native
from ralm_engine.retrieval.bm25_reference import ReferenceBm25, lucene_length
from ralm_engine.retrieval.native import NativeIndex
from ralm_engine.retrieval.protocol import Candidates, PassageMask

# Passages of the large corpus: three ranges of 2048, the last one not full.
NUM_PASSAGES = 5000
# Distinct words; Zipf's law makes a few of them common and most of them rare.
NUM_WORDS = 3000


class Texts:
    content_hash = "0" * 64

    def __init__(self, texts: list[str]):
        self.texts = texts
        self.num_passages = len(texts)

    def contents_range(self, begin: int, end: int) -> list[str]:
        return self.texts[begin:end]


def zipf_words(rng: np.random.Generator, size: int) -> list[str]:
    ranks = np.minimum(rng.zipf(1.2, size), NUM_WORDS)
    return [f"w{rank}q" for rank in ranks]


def equal(a: Candidates, b: Candidates) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("passage_QK", "score_QK", "count_Q", "status_Q")
    )


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(7)
    made = [" ".join(zipf_words(rng, int(rng.integers(0, 120)))) for _ in range(NUM_PASSAGES)]
    made[100] = made[4200] = made[2100]  # exact ties, in three ranges
    return made


@pytest.fixture(scope="module")
def index_path(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "index"
    NativeIndex.build(Texts(texts), path)
    return path


@pytest.fixture(scope="module")
def index(index_path: Path) -> NativeIndex:
    return NativeIndex.open(index_path)


@pytest.fixture(scope="module")
def reference(texts: list[str]) -> ReferenceBm25:
    return ReferenceBm25(texts)


@pytest.fixture(scope="module")
def queries(texts: list[str]) -> list[str]:
    """Strided: query j+1 drops 4 words of query j and adds 4."""
    words = zipf_words(np.random.default_rng(11), 4 * 60 + 32)
    strided = [" ".join(words[at : at + 32]) for at in range(0, 4 * 60, 4)]
    return [*strided, texts[2100], texts[100]]


def test_strided_search_equals_the_numpy_twin(index, reference, queries):
    """Fails when any id, order, tie or bit of a score differs from the formula."""
    assert equal(index.search(queries, 10), reference.search(queries, 10))


def test_twin_notices_a_changed_parameter(index, texts, queries):
    """Mutation check: a k1 off by 1e-3 must show, or the comparison above proves nothing."""
    changed = ReferenceBm25(texts, k1=0.901).search(queries, 10)
    assert not equal(index.search(queries, 10), changed)


@pytest.mark.parametrize("k", [1, 2, 16, 256, NUM_PASSAGES + 5])
def test_strided_search_equals_the_exhaustive_one(index, queries, k):
    """Fails when a bound is too low and hides a hit, at any depth."""
    assert equal(index.search(queries, k), index.search_exhaustively(queries, k))


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.4), (0.9, 0.0), (1.2, 0.75), (50.0, 1.0)])
def test_parameters_are_chosen_at_query_time(index_path, texts, queries, k1, b):
    """Fails when k1 or b is baked into the index or a bound is wrong for them."""
    found = NativeIndex.open(index_path, k1=k1, b=b).search(queries[:20], 10)
    assert equal(found, ReferenceBm25(texts, k1=k1, b=b).search(queries[:20], 10))


def test_exclusion_happens_inside_the_search(index, reference, queries):
    """Fails when excluded passages use up places: k hits must remain."""
    best = index.search(queries, 10)
    mask = PassageMask.of(np.unique(best.passage_QK[:, :5]), num_passages=NUM_PASSAGES)
    found = index.search(queries, 10, exclude=mask)
    assert equal(found, reference.search(queries, 10, exclude=mask))
    assert not np.isin(found.passage_QK, mask.rows).any()
    assert (found.count_Q == 10).all()


def test_results_depend_on_nothing_but_the_query(index_path, index, queries):
    """Fails when batch, order of queries, threads or earlier searches leak into the results."""
    expected = index.search(queries, 10)
    order = np.random.default_rng(3).permutation(len(queries))
    shuffled = index.search([queries[i] for i in order], 10)
    assert np.array_equal(shuffled.passage_QK, expected.passage_QK[order])
    assert np.array_equal(shuffled.score_QK, expected.score_QK[order])
    single = [index.search([query], 10) for query in queries[:5]]
    assert [one.passage_QK[0].tolist() for one in single] == expected.passage_QK[:5].tolist()
    threaded = NativeIndex.open(index_path, num_threads=3)
    assert equal(threaded.search(queries * 9, 10), index.search(queries * 9, 10))


def test_ties_go_to_the_lower_row(index, texts):
    """Fails when equal passages come in another order than by row (probe 22)."""
    assert index.search([texts[2100]], 3).passage_QK[0].tolist() == [100, 2100, 4200]


@pytest.mark.parametrize("num_terms", [127, 128, 129, 1024, 1025, 2000])
def test_long_queries_keep_their_first_terms(index, reference, num_terms):
    """Fails at the edge between the methods, or when capped terms go unnoted (probe 19)."""
    query = " ".join(f"w{rank}q" for rank in range(num_terms, 0, -1))
    found = index.search([query], 16)
    assert equal(found, reference.search([query], 16))
    assert found.status_Q[0] == (2 if num_terms > 1024 else 0)


# Kept tiny: few words and passages make ties, empty passages and short lists of hits likely.
tiny_words = st.sampled_from(
    ["apple", "apples", "running", "the", "x", "1999", "Москва", "東京", ""]
)
tiny_texts = st.lists(st.lists(tiny_words, max_size=12).map(" ".join), max_size=8)


@settings(max_examples=40, deadline=None)
@given(texts=tiny_texts, queries=tiny_texts, k=st.integers(1, 12), b=st.floats(0, 1))
def test_tiny_corpora_equal_the_numpy_twin(tmp_path_factory, texts, queries, k, b):
    """Fails on any corner of small input: no passages, empty ones, k beyond the corpus."""
    path = tmp_path_factory.mktemp("tiny") / "index"
    NativeIndex.build(Texts(texts), path)
    found = NativeIndex.open(path, b=b).search(queries, k)
    assert equal(found, ReferenceBm25(texts, b=b).search(queries, k))


@given(st.integers(0, 2**31 - 1))
def test_lengths_are_rounded_as_lucene_does(length):
    """Fails when the one-byte length disagrees with the twin's arithmetic."""
    assert _native.decode_length(_native.encode_length(length)) == lucene_length(length)
