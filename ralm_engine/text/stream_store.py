"""The stream file of a run: texts, tokens and offsets, memory-mapped by every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.text.arrow_files import FORMAT_KEY, VERSION_KEY, MappedBatches, written_aside
from ralm_engine.text.passage_store import Progress
from ralm_engine.text.tokenizer import TextTokenizer, TokenisedText

FORMAT = "ralm_engine.streams"
FORMAT_VERSION = 1
HASH_KEY = b"ralm_engine.content_hash"
TOKENIZER_KEY = b"ralm_engine.tokenizer"

# A batch ends after this many streams or characters, so that a million small documents do not make
# a million batches.
_BATCH_STREAMS = 1024
_BATCH_CHARACTERS = 1 << 24


def _numbers(kind: pa.DataType) -> pa.DataType:
    return pa.large_list(pa.field("item", kind, nullable=False))


SCHEMA = pa.schema(
    [
        pa.field("stream_id", pa.string(), nullable=False),
        pa.field("sources", pa.list_(pa.string()), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("token_ids", _numbers(pa.int32()), nullable=False),
        pa.field("begin", _numbers(pa.int64()), nullable=False),
        pa.field("end", _numbers(pa.int64()), nullable=False),
        pa.field("num_words", pa.int64(), nullable=False),
        pa.field("num_spaces", pa.int64(), nullable=False),
        pa.field("num_bytes", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TextStream:
    """One text to evaluate.

    Attributes:
        stream_id: unique within the input.
        text: all of it; titles of documents are no part of it.
        sources: ids of the documents it holds, so that their own passages can be left out.
    """

    stream_id: str
    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCounts:
    """What perplexities of one text are divided by.

    Attributes:
        words: white-space words (`str.split`).
        spaces: single space characters.
        bytes: UTF-8 bytes.
    """

    words: int
    spaces: int
    bytes: int


def count_text(text: str) -> TextCounts:
    """Counts one text."""
    return TextCounts(
        words=len(text.split()), spaces=text.count(" "), bytes=len(text.encode("utf-8"))
    )


class StreamStore:
    """N tokenised streams in a memory-mapped Arrow file, in input order."""

    def __init__(self, mapped: MappedBatches, content_hash: str) -> None:
        self._mapped = mapped
        self._content_hash = content_hash
        self._num_tokens = _lengths(mapped)
        self._last_text: tuple[int, str] = (-1, "")

    @classmethod
    def open(cls, path: Path) -> StreamStore:
        """Maps a stream file; reads no text and no tokens.

        Raises:
            InputError: missing, unfinished, cut off, no stream file, or of a newer version.
        """
        mapped = MappedBatches(
            Path(path), what="stream file", format_name=FORMAT, format_version=FORMAT_VERSION
        )
        return cls(mapped, mapped.trailer(HASH_KEY, what="stream file"))

    @property
    def path(self) -> Path:
        """The file."""
        return self._mapped.path

    @property
    def content_hash(self) -> str:
        """Hex sha256 over ids, texts and tokens in order."""
        return self._content_hash

    @property
    def tokenizer_fingerprint(self) -> str:
        """Fingerprint of the tokenizer that made the tokens."""
        return self._mapped.metadata[TOKENIZER_KEY].decode()

    @property
    def num_streams(self) -> int:
        """N."""
        return self._mapped.num_rows

    @property
    def stream_ids(self) -> list[str]:
        """Names of all streams, unique, in order."""
        return [str(name) for name in self._mapped.values("stream_id", 0, self.num_streams)]

    def stream_id(self, i: int) -> str:
        """The name of stream i."""
        return str(self._mapped.value("stream_id", i))

    @property
    def num_tokens(self) -> npt.NDArray[np.int64]:
        """Tokens of every stream, int64 [N]."""
        return self._num_tokens

    def token_ids(self, i: int) -> npt.NDArray[np.int32]:
        """Tokens of stream i, int32 [T], read-only and zero-copy.

        Raises:
            IndexError: no such stream.
        """
        return self._array("token_ids", i)

    def offsets(self, i: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Character offsets (begin, end) of the tokens of stream i, int64 [T], zero-copy."""
        return self._array("begin", i), self._array("end", i)

    def text(self, i: int) -> str:
        """Text of stream i; the last one asked for is kept, since shards come in stream order."""
        if self._last_text[0] != i:
            self._last_text = (i, str(self._mapped.value("text", i)))
        return self._last_text[1]

    def sources(self, i: int) -> tuple[str, ...]:
        """Ids of the documents that stream i holds."""
        return tuple(self._mapped.value("sources", i))

    def counts(self, i: int) -> TextCounts:
        """Words, spaces and bytes of stream i."""
        words, spaces, size = (
            int(self._mapped.value(name, i)) for name in ("num_words", "num_spaces", "num_bytes")
        )
        return TextCounts(words=words, spaces=spaces, bytes=size)

    def _array(self, name: str, i: int) -> npt.NDArray[Any]:
        batch, place = self._mapped.locate(i)
        values: npt.NDArray[Any] = batch.column(name)[place].values.to_numpy(zero_copy_only=True)
        return values


def write_streams(
    streams: Iterable[TextStream],
    tokenizer: TextTokenizer,
    out: Path,
    *,
    limit_tokens: int = 0,
    progress: Progress | None = None,
) -> StreamStore:
    """Tokenises streams into a file, written aside and renamed when whole, and opens it.

    Args:
        streams: what to evaluate; read one at a time.
        tokenizer: makes the tokens.
        out: the file to write; replaced when it exists.
        limit_tokens: keeps this many tokens of every stream, and the text they cover; 0 keeps all.
        progress: called after every batch of streams.

    Raises:
        InputError: no stream has a single token.
        RunError: the disk is full or cannot be written.
    """
    schema = SCHEMA.with_metadata(
        {
            FORMAT_KEY: FORMAT,
            VERSION_KEY: str(FORMAT_VERSION),
            TOKENIZER_KEY: tokenizer.fingerprint,
        }
    )
    content = hashlib.sha256()
    names: list[str] = []
    num_tokens = 0
    with written_aside(out) as aside:
        with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for rows in _batched(_tokenised(streams, tokenizer, limit_tokens)):
                writer.write_batch(_batch_of(rows, schema))
                for stream, tokens in rows:
                    _update(content, stream, tokens)
                    num_tokens += tokens.num_tokens
                    names.append(stream.stream_id)
                if progress is not None:
                    progress(len(names), 0)
            # The hash is known only now: it rides on an empty last batch.
            writer.write_batch(_batch_of([], schema), {HASH_KEY: content.hexdigest()})
        if num_tokens == 0:
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(f"the input has no tokens to score (streams: {shown or 'none'})")
    return StreamStore.open(out)


def _tokenised(
    streams: Iterable[TextStream], tokenizer: TextTokenizer, limit_tokens: int
) -> Iterator[tuple[TextStream, TokenisedText]]:
    for stream in streams:
        tokens = tokenizer.encode(stream.text)
        if 0 < limit_tokens < tokens.num_tokens:
            tokens = tokens.head(limit_tokens)
            text = stream.text[: int(tokens.end[-1])]
            yield TextStream(stream.stream_id, text, stream.sources), tokens
        else:
            yield stream, tokens


_Row = tuple[TextStream, TokenisedText]


def _batched(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    batch: list[_Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row[0].text)
        if len(batch) == _BATCH_STREAMS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _batch_of(rows: list[_Row], schema: pa.Schema) -> pa.RecordBatch:
    counts = [count_text(stream.text) for stream, _ in rows]
    columns = [
        [stream.stream_id for stream, _ in rows],
        [list(stream.sources) for stream, _ in rows],
        [stream.text for stream, _ in rows],
        [tokens.token_ids for _, tokens in rows],
        [tokens.begin for _, tokens in rows],
        [tokens.end for _, tokens in rows],
        [count.words for count in counts],
        [count.spaces for count in counts],
        [count.bytes for count in counts],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _update(content: hashlib._Hash, stream: TextStream, tokens: TokenisedText) -> None:
    ids = np.ascontiguousarray(tokens.token_ids, dtype="<i4").tobytes()
    for part in (stream.stream_id.encode("utf-8"), stream.text.encode("utf-8"), ids):
        content.update(len(part).to_bytes(8, "little"))
        content.update(part)


def _lengths(mapped: MappedBatches) -> npt.NDArray[np.int64]:
    lengths = [batch.column("token_ids").value_lengths().to_numpy() for batch in mapped.batches]
    return np.concatenate([np.zeros(0, dtype=np.int64), *lengths]).astype(np.int64)
