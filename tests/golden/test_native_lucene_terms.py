"""The analyzer against Lucene's, live, on a sample; compare_analyzer.py does all passages."""

from __future__ import annotations

import gzip
import itertools
import re
import subprocess
import sys

import pytest

from ralm_engine.errors import MissingDependencyError
from ralm_engine.retrieval.java import find_anserini, find_java_home

pytestmark = pytest.mark.slow

NUM_PASSAGES = 183_597
# Every 367th line: 501 passages from all parts of the file.
STEP = 367


@pytest.fixture(autouse=True)
def _lucene() -> None:
    try:
        find_java_home()
        find_anserini()
    except MissingDependencyError as error:
        pytest.skip(str(error))


def test_terms_of_real_passages_equal_lucenes(shared, repository, tmp_path):
    """Fails when any of 501 passages has another term list; the JVM gets a process of its own."""
    sample = tmp_path / "sample.jsonl.gz"
    source = shared / "data" / "passages-a.jsonl.gz"
    with gzip.open(source, "rb") as lines, gzip.open(sample, "wb") as out:
        out.writelines(itertools.islice(lines, 0, None, STEP))
    script = repository / "benchmarks" / "retrieval" / "compare_analyzer.py"
    done = subprocess.run(
        [sys.executable, str(script), str(sample)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"^(\d+) texts, (\d+) terms, 0 different", done.stdout, re.MULTILINE)
    assert counts is not None, done.stdout
    assert int(counts[1]) == -(-NUM_PASSAGES // STEP)
    # Passages have up to 100 words, of which stop words take a third or so.
    assert int(counts[2]) > 40 * int(counts[1])
