"""Corpus readers: right records from every format, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from ralm_engine.errors import InputError, MissingDependencyError
from ralm_engine.text.corpus import Document, check_sources, read_documents
from ralm_engine.text.hub import parse_hub_name

RECORDS = [
    {"id": "a", "title": "T", "text": "one two"},
    {"title": None, "text": "no id, NUL \x00 and \U0001f600"},
    {"id": 7, "contents": "Arabic العربية\x85line"},
]
EXPECTED = [
    ("a", "T", "one two"),
    ("c-1", "", "no id, NUL \x00 and \U0001f600"),
    ("7", "", "Arabic العربية\x85line"),
]


def as_tuples(documents):
    return [(document.id, document.title, document.text) for document in documents]


def read(path):
    return as_tuples(read_documents([str(path)]))


def jsonl(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_jsonl_reads_the_same_plain_and_compressed(tmp_path, suffix, pack):
    """Fails if a compression changes a record, or if U+0085 inside a text ends a line."""
    path = tmp_path / f"c.jsonl{suffix}"
    path.write_bytes(pack(b"\xef\xbb\xbf" + jsonl(RECORDS) + b"\r\n  \n"))
    assert read(path) == EXPECTED


def test_zst_of_several_frames_is_read_to_the_end(tmp_path):
    """Fails if reading stops after the first frame, as files appended to have several."""
    path = tmp_path / "c.jsonl.zst"
    pack = zstandard.ZstdCompressor().compress
    lines = jsonl([{"text": f"passage {i} " + "x" * 50} for i in range(3000)])
    path.write_bytes(pack(lines[:70000]) + pack(b"") + pack(lines[70000:]))
    texts = [text for _, _, text in read(path)]
    assert len(texts) == 3000
    assert texts[-1].startswith("passage 2999 ")


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
@pytest.mark.parametrize("format_suffix", [".jsonl", ".txt"])
def test_cut_off_compressed_file_is_an_error(tmp_path, rng, suffix, pack, format_suffix):
    """Fails if a truncated download passes for a shorter corpus."""
    path = tmp_path / f"c{format_suffix}{suffix}"
    noise = rng.integers(97, 123, 200_000).astype("u1").tobytes().decode()
    raw = pack(jsonl([{"text": noise[i : i + 1000]} for i in range(0, len(noise), 1000)]))
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match=r"c\.\w+\.\w+: .*cut off after line \d+"):
        read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "x"', "line 2: bad JSON at column 13"),
        (b'["x"]', "line 2: expected a JSON object, found list"),
        (b'{"title": "x"}', 'line 2: no key "text" among title'),
        (b'{"text": 3}', 'line 2: "text" must be a string, found int'),
        (b'{"text": null}', 'line 2: "text" must be a string, found null'),
        (b'{"text": "x", "title": ["y"]}', 'line 2: "title" must be a string, found list'),
        (b'{"text": "x", "id": 1.5}', 'line 2: "id" must be a string or an integer, found float'),
        (b'{"text": "a \\ud83d b"}', 'line 2: "text" holds a lone surrogate'),
        (b'{"text": "x", "title": "\\udc00"}', 'line 2: "title" holds a lone surrogate'),
        (b'{"text": "a\xff"}', "line 2: byte 0xff at column 12 is not UTF-8"),
        (b'{"text": "a\xed\xa0\x80"}', "line 2: byte 0xed at column 12 is not UTF-8"),
        (b"[" * 100_000, "line 2: JSON is nested too deeply"),
    ],
)
def test_bad_line_is_named(tmp_path, line, message):
    """Fails if an error does not say which line of which file is wrong, and why."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_surrogate_pair_in_json_is_one_character(tmp_path):
    """Fails if valid escaped pairs are taken for lone surrogates."""
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "\\ud83d\\ude00"}\n')
    assert read(path) == [("c-0", "", "\U0001f600")]


def test_txt_is_one_document_byte_for_byte(tmp_path):
    """Fails if line ends or outer white space of a text are touched."""
    path = tmp_path / "book.txt.gz"
    path.write_bytes(gzip.compress(b"\n = A = \r\n\rtext\n\n"))
    assert read(path) == [("book", "", "\n = A = \r\n\rtext\n\n")]


def test_txt_names_the_line_that_is_not_utf8(tmp_path):
    """Fails if the error gives an offset where a person needs a line."""
    path = tmp_path / "latin.txt"
    path.write_bytes("one\ntwo\ncaf\u00e9\n".encode("cp1252"))
    with pytest.raises(InputError, match="line 3: byte 0xe9 at column 4 is not UTF-8"):
        read(path)


def test_dpr_tsv_unquotes_and_keeps_newlines_in_quotes(tmp_path):
    """Fails if doubled quotes stay doubled or a quoted line end splits a row."""
    path = tmp_path / "psgs_w100.tsv.gz"
    rows = 'id\ttext\ttitle\n1\t"Aaron ""the"" prophet\nsecond line"\tAaron\n2\tplain\tB\n'
    path.write_bytes(gzip.compress(rows.encode()))
    assert read(path) == [
        ("1", "Aaron", 'Aaron "the" prophet\nsecond line'),
        ("2", "B", "plain"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: no column named text among none"),
        ("id\tbody\n1\tx\n", "line 1: no column named text among id, body"),
        ("id\ttext\ttitle\n1\tx\ty\n2\tx\n", "line 3: 2 columns where the header has 3"),
        ('id\ttext\n1\t"never closed\n', "unexpected end of data"),
    ],
)
def test_bad_tsv_is_named(tmp_path, content, message):
    """Fails if a malformed DPR file is read as something else."""
    path = tmp_path / "p.tsv"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert message in str(caught.value)


def test_parquet_reads_text_or_contents_with_optional_columns(tmp_path):
    """Fails if optional columns are required or extra ones disturb."""
    path = tmp_path / "c.parquet"
    table = {"contents": ["x", "y"], "title": ["T", None], "n": [1, 2]}
    pq.write_table(pa.table(table), path)
    assert read(path) == [("c-0", "T", "x"), ("c-1", "", "y")]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"body": ["x"]}, "no column named text among body"),
        ({"text": ["x", None]}, 'row 1: "text" must be a string, found null'),
        ({"text": [b"\xff\xfe"]}, '"text" must be a string, found bytes'),
        (
            {"text": pa.array([b"fine", b"\xff"]).cast(pa.string(), safe=False)},
            "rows 0..1: ",
        ),
    ],
)
def test_bad_parquet_is_named(tmp_path, table, message):
    """Fails if a Parquet file without usable text is not refused by name."""
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(InputError) as caught:
        read(path)
    assert message in str(caught.value)


def test_truncated_parquet_is_named(tmp_path):
    """Fails if Arrow's own exception reaches the user."""
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": ["x" * 100]}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"c\.parquet cannot be read as Parquet"):
        read(path)


@pytest.mark.parametrize("name", ["x.pdf", "x", "x.parquet.gz", ".gz"])
def test_unknown_format_is_refused_with_the_known_ones(tmp_path, name):
    """Fails if a format is guessed."""
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=r"no known format; use one of \.txt"):
        check_sources([str(tmp_path / name)])


def test_missing_file_is_found_before_any_work(tmp_path):
    """Fails if the second source is only looked at after the first was read."""
    present = tmp_path / "a.txt"
    present.write_text("x")
    with pytest.raises(InputError, match=r"cannot read .*gone\.jsonl: No such file"):
        check_sources([str(present), str(tmp_path / "gone.jsonl")])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf:wikitext/wikitext-103-raw-v1:test", ("wikitext", "wikitext-103-raw-v1", "test")),
        ("hf:Salesforce/wikitext/w2:test[:10%]", None),
        ("hf:Salesforce/wikitext/w2:test", ("Salesforce/wikitext", "w2", "test")),
        ("hf:owner/name/:train", ("owner/name", None, "train")),
        ("hf:name:train", ("name", None, "train")),
        ("hf:name/config", None),
        ("hf::train", None),
    ],
)
def test_hub_names(name, parts):
    """Fails if a data set, its configuration and its split are mixed up."""
    if parts is None:
        with pytest.raises(InputError, match="write hf:name/config:split"):
            parse_hub_name(name)
    else:
        assert parse_hub_name(name) == parts


def test_hub_without_the_package_says_what_to_install(monkeypatch):
    """Fails if the optional package is needed at import or missing it is a bare ImportError."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r"needs the package datasets; pip install"):
        list(read_documents(["hf:name/config:test"]))


def test_hub_rows_become_documents(monkeypatch):
    """Fails if rows of a data set are not read like those of a file."""
    stub = types.ModuleType("datasets")
    stub.load_dataset = lambda path, config, split: [{"text": f"{path} {config} {split}"}]
    monkeypatch.setitem(sys.modules, "datasets", stub)
    found = list(read_documents(["hf:owner/name/config:test"]))
    assert found == [Document("name-test-0", "", "owner/name config test")]
