"""Cuts documents into passages and writes the passage file, in bounded memory."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.store.atomic import temporary_name
from ralm_engine.text.arrow_files import written_aside
from ralm_engine.text.corpus import Document
from ralm_engine.text.passage_store import (
    NOT_DUPLICATE,
    TEXT_FIELDS,
    PassageCounts,
    PassageStore,
    Progress,
    schema_with,
)

_WORD = re.compile(r"\S+")
_DIGEST_BYTES = 16
# A batch ends after this many rows or characters: small enough to map one passage cheaply, and far
# below the 2 GiB that an Arrow string column can hold.
_BATCH_ROWS = 8192
_BATCH_CHARACTERS = 1 << 25
_Row: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How documents become passages.

    Attributes:
        max_words: white-space words that a passage cut from a longer document holds at most.
        tolerance: a document that exceeds max_words by at most this share stays whole.
    """

    max_words: int = 100
    # 2.2% of the passages of a published 100-word Wikipedia corpus have 101..109 words by
    # str.split; cutting off those few words would move every row number behind them.
    tolerance: float = 0.1

    @property
    def whole_words(self) -> int:
        """Words of the longest document that stays whole."""
        return math.floor(self.max_words * (1 + self.tolerance) + 1e-9)


def split_document(document: Document, rule: SplitRule) -> Iterator[_Row]:
    """Yields (id, title, text, source) of the document's passages.

    A document of at most rule.whole_words words is one passage, unchanged and under its own id. A
    longer one is cut at word boundaries into `<id>-0`, `<id>-1`, ...; the white space between two
    passages belongs to neither. A document without a word yields nothing.
    """
    num_words = len(document.text.split())
    if num_words == 0:
        return
    if num_words <= rule.whole_words:
        yield document.id, document.title, document.text, document.id
        return
    for number, (begin, end) in enumerate(_spans(document.text, rule.max_words)):
        text = document.text[begin:end]
        yield f"{document.id}-{number}", document.title, text, document.id


def _spans(text: str, max_words: int) -> Iterator[tuple[int, int]]:
    begin = end = count = 0
    for word in _WORD.finditer(text):
        if count == max_words:
            yield begin, end
            count = 0
        if count == 0:
            begin = word.start()
        end = word.end()
        count += 1
    yield begin, end


def normalise(text: str) -> str:
    """What two passages share when they are duplicates: NFKC, case folded, single spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def build_passages(
    sources: Iterable[Document],
    out: Path,
    *,
    split: SplitRule | None = None,
    build: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> PassageStore:
    """Writes the passage file, aside and renamed when whole, and opens it.

    Two passes over the disk, because the hash and the duplicates are known only at the end;
    memory is one batch plus 16 bytes a passage.

    Args:
        sources: documents of any reader.
        out: the file to write; replaced when it exists.
        split: how documents are cut; None is SplitRule().
        build: what to record about the sources, JSON values.
        progress: called after every batch.

    Raises:
        InputError: a source is bad, or there is no passage at all.
        RunError: the disk is full or cannot be written.
    """
    with written_aside(out) as aside:
        first = aside.with_name(temporary_name(out.name))
        try:
            writer = _FirstPass(split or SplitRule())
            writer.run(sources, first, progress)
            if writer.num_passages == 0:
                raise InputError(
                    f"no passages to write to {out}: the sources hold no text "
                    f"({writer.num_documents} documents, {writer.num_empty} empty)"
                )
            _second_pass(first, aside, writer, build or {})
        finally:
            first.unlink(missing_ok=True)
    return PassageStore.open(out)


class _FirstPass:
    """Writes ids, titles, texts and sources; hashes the content and every normalised text."""

    def __init__(self, split: SplitRule) -> None:
        self._split = split
        self._content = hashlib.sha256()
        self._digests = bytearray()
        self.num_documents = 0
        self.num_empty = 0
        self.num_passages = 0

    def run(self, sources: Iterable[Document], out: Path, progress: Progress | None) -> None:
        schema = pa.schema(TEXT_FIELDS)
        with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for rows in _batched(self._passages(sources)):
                self._digest(rows)
                columns = [
                    pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)
                ]
                writer.write_batch(pa.record_batch(columns, schema=schema))
                self.num_passages += len(rows)
                if progress is not None:
                    progress(self.num_passages, 0)

    def _passages(self, sources: Iterable[Document]) -> Iterator[_Row]:
        for document in sources:
            self.num_documents += 1
            empty = True
            for row in split_document(document, self._split):
                empty = False
                yield row
            self.num_empty += empty

    def _digest(self, rows: list[_Row]) -> None:
        content: list[bytes] = []
        for identifier, title, text, _ in rows:
            for part in (identifier, title, text):
                raw = part.encode("utf-8")
                content.append(len(raw).to_bytes(8, "little"))
                content.append(raw)
            folded = normalise(text).encode("utf-8")
            self._digests += hashlib.blake2b(folded, digest_size=_DIGEST_BYTES).digest()
        self._content.update(b"".join(content))

    def content_hash(self) -> str:
        return self._content.hexdigest()

    def duplicate_of(self) -> npt.NDArray[np.int64]:
        halves = np.frombuffer(self._digests, dtype=np.uint64).reshape(-1, 2)
        return first_equal_row(halves)


def _batched(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    batch: list[_Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row[1]) + len(row[2])
        if len(batch) == _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def first_equal_row(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """For every row of keys [N, 2] the lowest row equal to it, NOT_DUPLICATE for itself."""
    num_rows = len(keys)
    order = np.lexsort((np.arange(num_rows), keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    starts = np.ones(num_rows, dtype=bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.cumsum(starts) - 1
    lowest = order[starts][group]
    first = np.empty(num_rows, dtype=np.int64)
    first[order] = np.where(lowest == order, NOT_DUPLICATE, lowest)
    return first


def _second_pass(first: Path, out: Path, writer: _FirstPass, build: Mapping[str, object]) -> None:
    duplicate_of = writer.duplicate_of()
    counts = PassageCounts(
        documents=writer.num_documents,
        empty=writer.num_empty,
        duplicates=int(np.count_nonzero(duplicate_of != NOT_DUPLICATE)),
    )
    schema = schema_with(writer.content_hash(), counts, build)
    begin = 0
    with (
        pa.memory_map(str(first), "r") as source,
        pa.OSFile(str(out), "wb") as sink,
        pa.ipc.new_file(sink, schema) as final,
    ):
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            flags = pa.array(duplicate_of[begin : begin + batch.num_rows])
            final.write_batch(pa.record_batch([*batch.columns, flags], schema=schema))
            begin += batch.num_rows
