"""More than 2 GiB of text in one file: past what 32-bit offsets can count (probe 26)."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ralm_engine.text.corpus import Document
from ralm_engine.text.passages import SplitRule, build_passages

pytestmark = pytest.mark.slow

TEXT_BYTES = 1 << 20
NUM_TEXTS = 2100
NEEDED_BYTES = 3 * NUM_TEXTS * TEXT_BYTES  # both passes and some room


def test_passage_file_beyond_2_gib(tmp_path):
    """Fails if a 32-bit offset overflows, or the last rows come back as others."""
    if shutil.disk_usage(tmp_path).free < NEEDED_BYTES:
        pytest.skip(f"needs {NEEDED_BYTES >> 30} GiB of disk in {tmp_path}")
    filler = ("x" * 1023 + " ") * (TEXT_BYTES // 1024)  # few words, so that splitting is quick
    documents = (Document(f"d{i}", f"T{i}", f"{i} {filler}") for i in range(NUM_TEXTS))
    store = build_passages(documents, tmp_path / "p.arrow", split=SplitRule(max_words=1 << 30))
    try:
        assert store.path.stat().st_size > 1 << 31
        assert store.num_passages == NUM_TEXTS
        for row in (0, NUM_TEXTS // 2, NUM_TEXTS - 1):
            assert store.contents(row) == f"T{row}\n{row} {filler}"
        np.testing.assert_array_equal(store.duplicate_of, -np.ones(NUM_TEXTS, dtype=np.int64))
    finally:
        store.path.unlink()
