"""Texts of streams and passages, read from their Arrow files by row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.store.location import Location

_Offsets: TypeAlias = npt.NDArray[np.int64]


class StreamTexts:
    """The text of a run's streams, cut by token offsets.

    Args:
        source: `streams.arrow` of the run.

    Raises:
        InputError: the file is missing or damaged.
    """

    def __init__(self, source: Location) -> None:
        self._table = _open(source)
        ids = self._table.column("stream_id").to_pylist()
        self._row_of = {name: row for row, name in enumerate(ids)}
        # Strides come stream by stream: one decoded stream is kept, never two.
        self._last: tuple[int, str, _Offsets, _Offsets] | None = None

    def pieces(self, stream_id: str, *, begin: int, length: int) -> list[str]:
        """The text of `length` tokens from `begin`; joined they are the text, nothing twice.

        A character that several tokens share stands with the first of them, the others are empty;
        space that belongs to no token stands with the token after it.
        """
        text, _, last = self._stream(stream_id)
        at = int(last[begin - 1]) if begin else 0
        found = []
        for end in last[begin : begin + length].tolist():
            found.append(text[at:end])
            at = max(at, end)
        return found

    def before(self, stream_id: str, *, position: int, length: int) -> str:
        """The text of the last `length` tokens before `position`."""
        text, first, last = self._stream(stream_id)
        if not position:
            return ""
        return text[int(first[max(0, position - length)]) : int(last[position - 1])]

    def _stream(self, stream_id: str) -> tuple[str, _Offsets, _Offsets]:
        row = self._row_of.get(stream_id)
        if row is None:
            raise InputError(
                f'streams.arrow has no stream "{stream_id}" that the strides table names',
                hint="the run directory is mixed from two runs; score again",
            )
        if self._last is None or self._last[0] != row:
            begin, end = (
                np.asarray(self._table.column(name)[row].values) for name in ("begin", "end")
            )
            self._last = (row, self._table.column("text")[row].as_py(), begin, end)
        return self._last[1:]


class PassageTexts:
    """Id, title and text of passages by row.

    Args:
        source: the passage file that the run was scored with.

    Raises:
        InputError: the file is missing or damaged.
    """

    def __init__(self, source: Location) -> None:
        self._table = _open(source)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def get(self, row: int) -> tuple[str, str, str]:
        """(id, title, text) of one passage."""
        columns = (self._table.column(name)[row].as_py() for name in ("id", "title", "text"))
        identifier, title, text = columns
        return identifier, title, text


def _open(source: Location) -> pa.Table:
    try:
        local = source.local
        data = pa.memory_map(str(local)) if local is not None else source.read()
        return pa.ipc.open_file(data).read_all()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot read {source.label}: {error}") from error
