"""Strided queries: the text of the last tokens before a position, cut from the source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def query_texts(
    text: str,
    begin: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    positions: Sequence[int] | npt.NDArray[np.int64],
    *,
    query_length: int,
) -> list[str]:
    """The text of the query_length tokens before each position, exactly as it stands.

    White space at either end stays, as in the published code, which decodes the tokens. Cutting by
    character offsets never splits a character: its byte tokens all carry the whole of it.

    Args:
        text: the stream's text.
        begin: first character of each token. Shape [T].
        end: character after each token. Shape [T].
        positions: token positions 0..T; position 0 gives an empty query.
        query_length: tokens a query spans at most, at least 1.
    """
    queries: list[str] = []
    for position in np.asarray(positions, dtype=np.int64).tolist():
        if position == 0:
            queries.append("")
            continue
        first = max(position - query_length, 0)
        queries.append(text[int(begin[first]) : int(end[position - 1])])
    return queries
