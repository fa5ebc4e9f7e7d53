"""Streams: the token sequences that are evaluated, with the text they came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ralm_engine.errors import InputError
from ralm_engine.text.corpus import (
    Document,
    as_paths,
    check_sources,
    read_documents,
    source_stem,
)
from ralm_engine.text.stream_store import StreamStore, TextCounts, TextStream, write_streams

__all__ = [
    "InputConfig",
    "StreamStore",
    "TextCounts",
    "TextStream",
    "read_streams",
    "write_streams",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputConfig:
    """What is evaluated. The [input] section of a job file.

    Attributes:
        path: one source or several, of any format of the corpus readers.
        streams: `concat` makes one stream of everything, `document` one of every document.
        separator: stands between two documents of a `concat` stream.
        limit_tokens: cuts every stream after this many tokens, for trials; 0 keeps all.
    """

    path: str | tuple[str, ...]
    streams: Literal["concat", "document"] = "concat"
    separator: str = "\n\n"
    limit_tokens: int = 0

    def __post_init__(self) -> None:
        as_paths(self.path)
        if self.limit_tokens < 0:
            raise InputError(f"[input] limit_tokens = {self.limit_tokens} must not be negative")

    @property
    def paths(self) -> tuple[str, ...]:
        """The sources as a tuple."""
        return as_paths(self.path)


def read_streams(cfg: InputConfig) -> Iterator[TextStream]:
    """Yields the streams of the input, in order.

    A `concat` stream is named after the first source, a `document` stream after its document; a
    name that was there before gets `-2`, `-3`, ... Empty documents stay streams of their own in
    `document` mode and vanish, with their separator, in `concat` mode.

    Raises:
        InputError: a source is missing or bad, or there is no text at all, naming the sources.
    """
    check_sources(cfg.paths)
    documents = read_documents(cfg.paths)
    if cfg.streams == "concat":
        yield _concatenated(documents, cfg)
        return
    names = _UniqueNames()
    empty = True
    for document in documents:
        empty = empty and not document.text
        yield TextStream(names.take(document.id), document.text, (document.id,))
    if empty:
        raise _no_text(cfg.paths)


def _concatenated(documents: Iterator[Document], cfg: InputConfig) -> TextStream:
    kept = [document for document in documents if document.text]
    if not kept:
        raise _no_text(cfg.paths)
    text = cfg.separator.join(document.text for document in kept)
    return TextStream(source_stem(cfg.paths[0]), text, tuple(document.id for document in kept))


def _no_text(paths: Sequence[str]) -> InputError:
    return InputError(f"the input holds no text: {', '.join(paths)}")


class _UniqueNames:
    """Gives every name out once; later takers get a number behind it."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            number = self._next.get(wanted, 2)
            self._next[wanted] = number + 1
            name = f"{wanted}-{number}"
        self._taken.add(name)
        return name
