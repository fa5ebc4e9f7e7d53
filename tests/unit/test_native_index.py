"""The index file: building, opening, verifying, and what happens when it is damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ralm_engine.errors import InputError
from ralm_engine.retrieval.native import HEADER_FILE, POSTINGS_FILE, NativeIndex
from ralm_engine.retrieval.protocol import PassageMask, RetrievalStatus


class Texts:
    def __init__(self, texts: list[str], content_hash: str = "c" * 64):
        self.texts = texts
        self.num_passages = len(texts)
        self.content_hash = content_hash

    def contents_range(self, begin: int, end: int) -> list[str]:
        return self.texts[begin:end]


def build(texts: list[str], path: Path, **options) -> NativeIndex:
    NativeIndex.build(Texts(texts), path, **options)
    return NativeIndex.open(path)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(5)
    return [
        " ".join(f"t{word}" for word in rng.zipf(1.3, size=rng.integers(1, 60)) % 997)
        for _ in range(600)
    ]


@pytest.fixture(scope="module")
def built(texts, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("built") / "index"
    build(texts, path)
    return path


@pytest.fixture
def copy(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def test_bytes_depend_on_the_texts_alone(texts, built, tmp_path):
    """Fails when threads, memory or spilled runs change the file."""
    # 64 KiB of text a run at least: repeat the texts until there are many runs.
    many = texts * 6
    one = tmp_path / "one"
    other = tmp_path / "other"
    NativeIndex.build(Texts(many), one, num_threads=1)
    NativeIndex.build(Texts(many), other, num_threads=3, memory_bytes=1)
    assert (one / POSTINGS_FILE).read_bytes() == (other / POSTINGS_FILE).read_bytes()
    assert (built / POSTINGS_FILE).read_bytes() != (one / POSTINGS_FILE).read_bytes()


def test_postings_are_what_was_indexed(texts, built):
    """Fails when a block boundary, a tail or a frequency is coded wrongly."""
    from ralm_engine import _native

    index = _native.Index(built / POSTINGS_FILE, k1=0.9, b=0.4)
    bags = [_native.analyze(text) for text in texts]
    for term in {"t1", "t2", "t5", "t77", "t996", "absent"}:
        rows, counts = index.postings(term)
        expected = [(row, bag.count(term)) for row, bag in enumerate(bags) if term in bag]
        assert list(zip(rows.tolist(), counts.tolist(), strict=True)) == expected
    assert index.norms.tolist() == [_native.encode_length(len(bag)) for bag in bags]
    index.verify()


def test_progress_ends_at_the_total(texts, tmp_path):
    """Fails when progress runs backwards or never says that all is done."""
    seen: list[tuple[int, int]] = []
    NativeIndex.build(Texts(texts), tmp_path / "i", progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert seen[-1] == (600, 600)


def test_info_names_what_it_was_built_from(built):
    """Fails when the header loses a field that mismatches are told by."""
    info = NativeIndex.open(built).info()
    assert info["num_passages"] == 600
    assert info["passages_hash"] == "c" * 64
    assert info["format"] == "native-bm25"


def test_other_passages_are_refused(built):
    """Fails when an index answers for passages it was not built from (probe 23)."""
    with pytest.raises(InputError, match=r"built from passages cccccccccccc, in use are dddd"):
        NativeIndex.open(built, passages_hash="d" * 64)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format_version", 99, r"format_version is 99, this program reads 1"),
        ("analyzer", "other", r"analyzer is 'other', this program reads 'lucene-english"),
        ("format", "lucene", r"format is 'lucene'"),
        ("checksum", "0" * 16, r"checksum 0{16}.* holds 600 with"),
        ("num_passages", 7, r"describes 7 passages .* holds 600"),
    ],
)
def test_a_header_of_something_else_names_both_sides(copy, field, value, message):
    """Fails when a newer format or a swapped file is read as if it were ours (probe 23)."""
    header = json.loads((copy / HEADER_FILE).read_text())
    header[field] = value
    (copy / HEADER_FILE).write_text(json.dumps(header))
    with pytest.raises(InputError, match=message):
        NativeIndex.open(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"x"', "\x00"])
def test_a_damaged_header_is_an_error(copy, content):
    """Fails when json rubbish escapes as another exception."""
    (copy / HEADER_FILE).write_text(content)
    with pytest.raises(InputError):
        NativeIndex.open(copy)


def test_a_missing_index_says_how_to_build_one(tmp_path):
    """Fails when the message has no next step."""
    with pytest.raises(InputError, match="index build"):
        NativeIndex.open(tmp_path)


def test_any_flipped_byte_is_noticed(copy):
    """Fails when damage anywhere in the file reaches a search (probe 23)."""
    path = copy / POSTINGS_FILE
    good = path.read_bytes()
    rng = np.random.default_rng(1)
    positions = {*range(0, 184, 3), *rng.integers(0, len(good), 200).tolist(), len(good) - 1}
    for position in sorted(positions):
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        if _is_padding(good, position):
            continue
        with pytest.raises(InputError):
            NativeIndex.open(copy)


def _is_padding(good: bytes, position: int) -> bool:
    """Whether the byte lies between two sections, where nothing is stored."""
    numbers = np.frombuffer(good, dtype="<u8", count=21)
    sections = numbers[8:20].reshape(4, 3)
    inside = any(offset <= position < offset + size for offset, size, _ in sections.tolist())
    return position >= 168 and not inside


def test_a_cut_file_is_noticed(copy):
    """Fails when a truncated index is opened (probe 23)."""
    path = copy / POSTINGS_FILE
    good = path.read_bytes()
    for size in [0, 1, 7, 100, 167, 168, len(good) // 2, len(good) - 1]:
        path.write_bytes(good[:size])
        with pytest.raises(InputError):
            NativeIndex.open(copy)
    path.write_bytes(good + b"\0")
    with pytest.raises(InputError, match="bytes, the file has"):
        NativeIndex.open(copy)


def test_a_newer_postings_file_is_named_as_such(copy):
    """Fails when the file's own version is not looked at before its checksum."""
    path = copy / POSTINGS_FILE
    data = bytearray(path.read_bytes())
    data[8] = 2
    path.write_bytes(data)
    with pytest.raises(InputError, match="format version 2, but this program reads version 1"):
        NativeIndex.open(copy)


def test_a_failed_build_leaves_nothing(tmp_path):
    """Fails when half an index stays behind, or the row of the bad passage is not named."""
    out = tmp_path / "index"
    with pytest.raises(InputError, match=r"passage row 1 .*surrogate"):
        NativeIndex.build(Texts(["fine", "bad \ud800"]), out)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_not_overwritten(built, texts):
    """Fails when a build would replace an index that is in use."""
    with pytest.raises(InputError, match="is in the way"):
        NativeIndex.build(Texts(texts), built)


def test_queries_without_terms_keep_their_place(built):
    """Fails when an empty query shifts those after it (probe 17)."""
    index = NativeIndex.open(built)
    found = index.search(["t5 t77", "the and of", "?!", "", "t5 t77"], 4)
    none = RetrievalStatus.NO_QUERY_TERMS
    assert found.status_Q.tolist() == [0, none, none, none, 0]
    assert found.count_Q.tolist() == [4, 0, 0, 0, 4]
    assert (found.passage_QK[1:4] == -1).all()
    assert found.passage_QK[0].tolist() == found.passage_QK[4].tolist()


@pytest.mark.parametrize("num_passages", [0, 1, 3])
def test_fewer_passages_than_k(tmp_path, num_passages):
    """Fails when padding shows up as a hit (probe 18)."""
    index = build(["red fox", "red dog", "blue cat"][:num_passages], tmp_path / "i")
    found = index.search(["red fox"] * 20, 10)
    hits = min(num_passages, 2)
    assert found.count_Q.tolist() == [hits] * 20
    assert (found.passage_QK[:, hits:] == -1).all()
    assert found.passage_QK[0, :hits].tolist() == list(range(hits))


def test_other_scripts_are_found_or_not_but_never_fail(tmp_path):
    """Fails when Cyrillic, Arabic, emoji or NUL break indexing or search (probes 19, 20)."""
    texts = [
        "plain English",
        "\u041c\u043e\u0441\u043a\u0432\u0430 city",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
        "smile \U0001f600",
        "a\x00zulu",
    ]
    index = build(texts, tmp_path / "i")
    queries = [
        "\u043c\u043e\u0441\u043a\u0432\u0430",
        texts[2],
        "\U0001f600",
        "zulu",
        "\u043d\u0435\u0442",
    ]
    found = index.search(queries, 1)
    assert found.passage_QK[:, 0].tolist() == [1, 2, 3, 4, -1]
    assert found.status_Q.tolist() == [0] * 5
    with pytest.raises(InputError, match=r"query 1 .*surrogate"):
        index.search(["fine", "\udfff"], 1)


def test_wrong_arguments_are_input_errors(built):
    """Fails when a bad k, mask or parameter gets past the boundary."""
    index = NativeIndex.open(built)
    with pytest.raises(InputError, match="k = 0"):
        index.search(["t5"], 0)
    with pytest.raises(InputError, match="mask is for 3 passages, the index holds 600"):
        index.search(["t5"], 1, exclude=PassageMask.of([1], num_passages=3))
    for options in ({"k1": -1}, {"b": 1.5}, {"k1": float("nan")}, {"num_threads": 0}):
        with pytest.raises(InputError):
            NativeIndex.open(built, **options)


def test_no_java_is_needed(built):
    """Fails when the default engine pulls in the JVM or pyserini (probe 24)."""
    script = (
        "import sys; from pathlib import Path; sys.modules.update(jnius=None, pyserini=None)\n"
        "from ralm_engine.retrieval.native import NativeIndex\n"
        f"print(NativeIndex.open(Path({str(built)!r})).search(['t5'], 1).count_Q[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
