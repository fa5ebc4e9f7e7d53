"""Texts of a run's streams and passages, by stream id and by row."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ralm_engine.errors import InputError
from ralm_engine.retrieval.queries import query_texts
from ralm_engine.text.stream_store import StreamStore

_Offsets: TypeAlias = npt.NDArray[np.int64]


class StreamTexts:
    """The text of a run's streams, cut by token offsets.

    Args:
        path: `streams.arrow` of the run.

    Raises:
        InputError: the file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._store = StreamStore.open(path)
        self._row_of = {name: row for row, name in enumerate(self._store.stream_ids)}
        # Strides come stream by stream: one decoded stream is kept, never two.
        self._last: tuple[int, str, _Offsets, _Offsets] | None = None

    def pieces(self, stream_id: str, *, begin: int, length: int) -> list[str]:
        """The text of `length` tokens from `begin`; joined they are the text, nothing twice.

        A character that several tokens share stands with the first of them, the others are empty;
        text that belongs to no token stands with the token after it.

        Raises:
            InputError: the file has no such stream.
        """
        text, _, last = self._stream(stream_id)
        at = int(last[begin - 1]) if begin else 0
        found = []
        for end in last[begin : begin + length].tolist():
            found.append(text[at:end])
            at = max(at, end)
        return found

    def query(self, stream_id: str, *, position: int, length: int) -> str:
        """The query that was cut from the last `length` tokens before `position`.

        Raises:
            InputError: the file has no such stream.
        """
        text, begin, end = self._stream(stream_id)
        return query_texts(text, begin, end, [position], query_length=length)[0]

    def _stream(self, stream_id: str) -> tuple[str, _Offsets, _Offsets]:
        row = self._row_of.get(stream_id)
        if row is None:
            raise InputError(
                f'{self._store.path} has no stream "{stream_id}", which the strides table names',
                hint="the run directory is mixed from two runs; score again",
            )
        if self._last is None or self._last[0] != row:
            self._last = (row, self._store.text(row), *self._store.offsets(row))
        return self._last[1:]
