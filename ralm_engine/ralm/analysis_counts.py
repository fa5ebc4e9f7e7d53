"""What the text of a run holds: tokens, words, spaces and bytes, per stream and over all.

A stream without a scored token (empty, or one token) counts for nothing. Words, spaces and bytes of
a stream are known of the whole text only, so they stay out until all its tokens are scored.

Legend: N streams with at least one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.errors import InputError
from ralm_engine.ralm.analysis_columns import Ints, Mask
from ralm_engine.ralm.analysis_read import RunFold
from ralm_engine.store.rundir import RunDirectory

_COLUMNS = {"word": "num_words", "space": "num_spaces", "byte": "num_bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCounts:
    """Counts of the streams of a run.

    Attributes:
        scored_N: scored targets of each stream of the fold.
        whole_N: whether all tokens of the stream are scored.
        counts_N: words, spaces, bytes of each stream, by denominator; 0 where unknown.
        num_streams: streams of the run, those without a line included; None when unknown.
        num_empty: streams without a token to score.
    """

    scored_N: Ints
    whole_N: Mask
    counts_N: Mapping[str, Ints]
    num_streams: int | None
    num_empty: int

    @classmethod
    def read(cls, run: RunDirectory, fold: RunFold) -> TextCounts:
        """Reads the streams table of a run; without one, only tokens are known."""
        names = fold.stream_names
        scored = np.bincount(fold.stream_S, weights=fold.length_S, minlength=len(names))
        scored_N = scored.astype(np.int64)
        try:
            table = run.tables("streams", columns=["stream_id", "num_tokens", *_COLUMNS.values()])
        except InputError:
            if run.is_complete:
                raise
            return cls(
                scored_N=scored_N,
                whole_N=np.zeros(scored_N.size, dtype=bool),
                counts_N={key: np.zeros_like(scored_N) for key in _COLUMNS},
                num_streams=None,
                num_empty=0,
            )
        row = pc.index_in(pa.array(names, pa.string()), table.column("stream_id").combine_chunks())
        if row.null_count:
            raise InputError(
                f'stream "{names[row.index(None).as_py()]}" has strides, but no line in streams',
                hint="`ralm-engine verify` tells what else is damaged",
            )
        row_N = np.asarray(row, dtype=np.int64)
        tokens = np.asarray(table.column("num_tokens"), dtype=np.int64)
        values = {key: np.asarray(table.column(column)) for key, column in _COLUMNS.items()}
        return cls(
            scored_N=scored_N,
            # The first token is scored only where a BOS token stands before it.
            whole_N=scored_N >= tokens[row_N] - 1,
            counts_N={key: value[row_N] for key, value in values.items()},
            num_streams=table.num_rows,
            num_empty=int(np.count_nonzero(tokens <= 1)),
        )

    def over_all(self) -> dict[str, int | None]:
        """Each denominator over all streams with a scored token; None until those are whole."""
        scored = self.scored_N > 0
        known = bool(np.all(self.whole_N[scored]))
        return {
            key: int(counts[scored].sum()) if known else None
            for key, counts in self.counts_N.items()
        }

    def of_stream(self, stream: int) -> dict[str, int | None]:
        """Each denominator of one stream; None until it is whole."""
        whole = bool(self.whole_N[stream])
        return {
            key: int(counts[stream]) if whole else None for key, counts in self.counts_N.items()
        }
