"""Record formats: JSON lines, DPR's tab-separated passages, Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ralm_engine.errors import InputError
from ralm_engine.text.lines import is_unicode, read_lines, unreadable

Record: TypeAlias = tuple[str | None, str, str]
"""(id or None, title, text)"""

TEXT_KEYS = ("text", "contents")
_PARQUET_ROWS = 4096


def read_jsonl_records(path: Path) -> Iterator[Record]:
    """JSON objects, one a line: text (or contents), title and id optional; blank lines skipped.

    Raises:
        InputError: file and line of bad JSON, a missing or wrongly typed key, a lone surrogate.
    """
    for number, line in read_lines(path):
        if not line or line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: bad JSON at column {error.colno}: {error.msg}") from error
        except RecursionError as error:
            raise InputError(f"{where}: JSON is nested too deeply") from error
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected a JSON object, found {type(value).__name__}")
        yield record_of(value, where)


def read_tsv_records(path: Path) -> Iterator[Record]:
    """DPR's psgs_w100.tsv: a header naming id, text and title, csv quoting, tabs.

    Raises:
        InputError: file and line of a missing column or a malformed row.
    """
    lines = _KeepLineEnds(path)
    rows = csv.reader(lines, delimiter="\t", strict=True)
    try:
        header = next(rows, None)
        if header is None or not any(key in header for key in TEXT_KEYS):
            raise InputError(
                f"{path}, line 1: no column named text among {', '.join(header or ()) or 'none'}",
                hint="the first line must name the columns: id, text, title",
            )
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if len(row) != len(header):
                raise InputError(f"{where}: {len(row)} columns where the header has {len(header)}")
            yield record_of(dict(zip(header, row, strict=True)), where)
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: {error}") from error


class _KeepLineEnds:
    """Gives csv its lines with line ends, which it needs inside quoted fields."""

    def __init__(self, path: Path) -> None:
        self._lines = read_lines(path)

    def __iter__(self) -> _KeepLineEnds:
        return self

    def __next__(self) -> str:
        return f"{next(self._lines)[1]}\n"


def read_parquet_records(path: Path) -> Iterator[Record]:
    """A Parquet table with a column text (or contents); title and id optional.

    Raises:
        InputError: not a Parquet file, no text column, a null text, or text that is not UTF-8.
    """
    try:
        with pq.ParquetFile(path) as file:
            yield from _parquet_rows(file, path)
    except OSError as error:
        raise unreadable(path, error) from error
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error


def _parquet_rows(file: pq.ParquetFile, path: Path) -> Iterator[Record]:
    names = file.schema_arrow.names
    text_key = next((key for key in TEXT_KEYS if key in names), None)
    if text_key is None:
        raise InputError(f"{path}: no column named text among {', '.join(names) or 'none'}")
    columns = [text_key, *(key for key in ("title", "id") if key in names)]
    row = 0
    for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns):
        try:
            batch.validate(full=True)
            values = batch.to_pylist()
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}, rows {row}..{row + batch.num_rows - 1}: {_first_line(error)}"
            ) from error
        for value in values:
            yield record_of(value, f"{path}, row {row}")
            row += 1


def record_of(value: Mapping[str, object], where: str) -> Record:
    """Checks one record of any format.

    Raises:
        InputError: no text, a value of the wrong type, or a lone surrogate; `where` leads it.
    """
    key = next((key for key in TEXT_KEYS if key in value), None)
    if key is None:
        raise InputError(f'{where}: no key "text" among {", ".join(value) or "none"}')
    text = value[key]
    if not isinstance(text, str):
        raise InputError(f'{where}: "{key}" must be a string, found {_kind(text)}')
    title = value.get("title")
    if title is None:
        title = ""
    if not isinstance(title, str):
        raise InputError(f'{where}: "title" must be a string, found {_kind(title)}')
    record = _identifier(value.get("id"), where), title, text
    for name, part in zip(("id", "title", key), record, strict=True):
        if part is not None and not is_unicode(part):
            raise InputError(f'{where}: "{name}" holds a lone surrogate, which is not Unicode text')
    return record


def _identifier(value: object, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f'{where}: "id" must be a string or an integer, found {_kind(value)}')


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
