"""The Lucene retriever on a small corpus: the protocol, odd text, exclusion, lost processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ralm_engine.errors import InputError, MissingDependencyError, RunError
from ralm_engine.retrieval.java import find_anserini, find_java_home
from ralm_engine.retrieval.lucene import LuceneIndex
from ralm_engine.retrieval.protocol import PassageMask, RetrievalStatus
from ralm_engine.text.corpus import Document
from ralm_engine.text.passages import build_passages

pytestmark = pytest.mark.slow  # a JVM takes seconds to start

TEXTS = [
    "the cat sat on the mat",
    "a cat and a dog",
    "a dog",
    "a dog",
    "\U0001f600 smiling face",
    "before\x00after NUL",
    "\u0643\u062a\u0627\u0628 \u043a\u043d\u0438\u0433\u0430",
    "the and of",
    "\x01\x02",
    *(f"filler number{i} zebra" for i in range(40)),
]


@pytest.fixture(scope="module")
def passages(tmp_path_factory):
    documents = [Document(f"d{i}", "", text) for i, text in enumerate(TEXTS)]
    return build_passages(documents, tmp_path_factory.mktemp("passages") / "p.arrow")


@pytest.fixture(scope="module")
def built(passages, tmp_path_factory):
    try:
        find_java_home()
        find_anserini()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("lucene")
    calls = []
    LuceneIndex.build(
        passages, folder / "index", progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(len(TEXTS), len(TEXTS))]
    assert [path.name for path in folder.iterdir()] == ["index"]
    return folder / "index"


@pytest.fixture
def index(built):
    opened = LuceneIndex.open(built, k1=0.9, b=0.4)
    yield opened
    opened.close()


def hits(found, query=0):
    return found.passage_QK[query, : found.count_Q[query]].tolist()


def bm25(texts, terms, *, k1, b):
    """Scores of pre-split texts; lengths up to 40 are exact in Lucene's one-byte norm."""
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    lengths_norm = k1 * (1 - b + b * lengths / lengths[lengths > 0].mean())
    num_docs = int((lengths > 0).sum())
    scores = np.zeros(len(texts))
    for term in terms:
        tf = np.array([text.count(term) for text in texts], dtype=np.float64)
        df = int((tf > 0).sum())
        idf = np.log(1 + (num_docs - df + 0.5) / (df + 0.5))
        scores[tf > 0] += idf * (tf / np.maximum(tf + lengths_norm, 1e-9))[tf > 0]
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (2.0, 0.0), (1.2, 1.0)])
def test_scores_are_bm25_with_the_asked_parameters(built, k1, b):
    """Fails if k1 and b are taken from the build, or a repeated term counts once."""
    analysed = [
        ["cat", "sat", "mat"], ["cat", "dog"], ["dog"], ["dog"], ["\U0001f600", "smile", "face"],
        ["before", "after", "nul"], ["a", "b"], [], [],
        *([["filler", f"number{i}", "zebra"] for i in range(40)]),
    ]  # fmt: skip
    expected = bm25(analysed, ["cat", "dog", "dog"], k1=k1, b=b)
    index = LuceneIndex.open(built, k1=k1, b=b)
    found = index.search(["cats dog Dogs"], 10)
    index.close()
    order = sorted(np.flatnonzero(expected), key=lambda row: (-round(expected[row], 6), row))
    assert hits(found) == order
    # Three float32 roundings of terms of at most this size.
    tolerance = 4 * np.finfo(np.float32).eps * expected.max()
    np.testing.assert_allclose(found.score_QK[0, : len(order)], expected[order], atol=tolerance)


def test_ties_go_to_the_lower_row_and_short_lists_are_padded(index):
    """Fails if equal passages change order (probe 22) or padding looks like a hit (probe 18)."""
    found = index.search(["dog"], 1000)
    assert hits(found)[:2] == [2, 3]
    assert found.passage_QK.shape == (1, 1000)
    assert found.count_Q.tolist() == [3]
    assert (found.passage_QK[0, 3:] == -1).all()
    assert (found.score_QK[0, 3:] == 0).all()
    assert hits(index.search(["zebra"], 40)) == list(range(9, 49))


def test_queries_without_terms_keep_their_place(index):
    """Fails if an empty query shifts its neighbours or is an error (probe 17)."""
    found = index.search(["dog", "the of", "?!", "", " ", "cat"], 2)
    none = RetrievalStatus.NO_QUERY_TERMS
    ok = RetrievalStatus.OK
    assert found.status_Q.tolist() == [ok, none, none, none, none, ok]
    assert found.count_Q.tolist() == [2, 0, 0, 0, 0, 2]
    assert hits(found, 5) == [1, 0]
    assert index.search([], 3).passage_QK.shape == (0, 3)


def test_odd_characters_arrive_whole(index):
    """Fails if a NUL ends a text or an emoji is garbled on its way to Java (probes 19, 20)."""
    queries = ["\U0001f600", "after", "x\x00after", "\u043a\u043d\u0438\u0433\u0430", "\u0416"]
    found = index.search(queries, 3)
    assert [hits(found, q) for q in range(5)] == [[4], [5], [5], [6], []]
    assert found.status_Q.tolist() == [RetrievalStatus.OK] * 5


def test_lone_surrogate_is_named(index):
    """Fails if a query that is not Unicode reaches the JVM (probe 20)."""
    with pytest.raises(InputError, match="query 1 holds a lone surrogate"):
        index.search(["fine", "a\ud800"], 3)


def test_query_of_2000_terms_is_capped_and_says_so(index):
    """Fails if Lucene's clause limit is a failure, or the wrong terms are kept (probe 19)."""
    first = " ".join(["dog", *(f"w{i}" for i in range(2000)), "cat"])
    found = index.search([first, "dog"], 5)
    assert found.status_Q.tolist() == [RetrievalStatus.TRUNCATED_QUERY, RetrievalStatus.OK]
    assert hits(found, 0) == hits(found, 1)
    np.testing.assert_array_equal(found.score_QK[0], found.score_QK[1])


@pytest.mark.parametrize("excluded", [[2], [9, 10, 11], range(9, 46), range(49), []])
def test_exclusion_leaves_k_others(index, passages, excluded):
    """Fails if an excluded passage is returned, or hits are missing that there are."""
    mask = PassageMask.of(list(excluded), num_passages=passages.num_passages)
    queries = ["zebra dog filler", "dog", "the"]
    everything = index.search(queries, passages.num_passages)
    found = index.search(queries, 2, exclude=mask)
    for q in range(3):
        kept = [row for row in hits(everything, q) if row not in set(excluded)]
        assert hits(found, q) == kept[:2]


def test_bad_arguments_are_named(index):
    """Fails if a mask of another passage file is applied, or k = 0 accepted."""
    with pytest.raises(InputError, match="k = 0"):
        index.search(["x"], 0)
    with pytest.raises(InputError, match="for 3 passages, the index holds 49"):
        index.search(["x"], 1, exclude=PassageMask.of([1], num_passages=3))


def test_threads_do_not_change_results(built):
    """Fails if results of parallel searches end at the wrong query."""
    queries = [f"number{i} dog" for i in range(40)] * 3
    one, two = (LuceneIndex.open(built, num_threads=threads) for threads in (1, 2))
    first, second = one.search(queries, 5), two.search(queries, 5)
    one.close()
    two.close()
    np.testing.assert_array_equal(first.passage_QK, second.passage_QK)
    np.testing.assert_array_equal(first.score_QK, second.score_QK)


def test_killed_worker_is_replaced_once(index):
    """Fails if a lost JVM loses the search, or the new one lacks the index."""
    before = index.search(["dog cat"], 4)
    (pid,) = index.worker_pids
    os.kill(pid, signal.SIGKILL)
    after = index.search(["dog cat"], 4)
    assert index.worker_pids != [pid]
    np.testing.assert_array_equal(before.passage_QK, after.passage_QK)


def test_worker_that_cannot_start_says_why(built):
    """Fails if the cause of a dead JVM is swallowed."""
    index = LuceneIndex.open(built, heap_mb=0)
    with pytest.raises(RunError, match=r"the Lucene process .*heap"):
        index.search(["x"], 1)


def test_index_with_damaged_content_is_refused(built, tmp_path):
    """Fails if an index whose rows are no longer the passages' is searched (probe 23)."""
    real = tmp_path / "changed"
    (real / "lucene").mkdir(parents=True)
    for path in (built / "lucene").iterdir():
        (real / "lucene" / path.name).write_bytes(path.read_bytes())
    header = json.loads((built / "header.json").read_text())
    (real / "header.json").write_text(json.dumps(header | {"num_passages": 48}))
    with pytest.raises(InputError, match="49 documents that do not match the 48 passages"):
        LuceneIndex.open(real).search(["x"], 1)


# Python 3.12 warns of any fork in a process with threads, which is what is tested here.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_gets_its_own_worker(index):
    """Fails if a child process talks over its parent's pipes."""
    expected = hits(index.search(["dog"], 3))
    (pid,) = index.worker_pids
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = hits(index.search(["dog"], 3))
        os.write(writer, json.dumps([found, index.worker_pids]).encode())
        index.close()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    rows, other = json.loads(os.read(reader, 1000))
    os.close(reader)
    assert rows == expected
    assert other != [pid]
    assert hits(index.search(["dog"], 3)) == expected
    assert index.worker_pids == [pid]


def test_worker_dies_with_its_parent(built):
    """Fails if a killed engine process leaves a JVM behind."""
    code = (
        "import sys, pathlib, time\n"
        "from ralm_engine.retrieval.lucene import LuceneIndex\n"
        "index = LuceneIndex.open(pathlib.Path(sys.argv[1]))\n"
        "index.search(['dog'], 1)\n"
        "print(index.worker_pids[0], flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, str(built)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("built")
def test_interrupted_build_leaves_nothing(passages, tmp_path):
    """Fails if a half-built index stays, under its name or another (probe 25)."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LuceneIndex.build(passages, tmp_path / "index", progress=stop)
    assert list(tmp_path.iterdir()) == []
