"""What every retrieval engine promises.

Legend: Q queries, K candidates per query, N passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ralm_engine.errors import InputError

NO_PASSAGE = -1
"""Pads candidate lists that are shorter than K."""


class RetrievalStatus(IntEnum):
    """Why a query has the candidates it has. The names are what the tables store."""

    OK = 0
    NO_QUERY_TERMS = 1
    TRUNCATED_QUERY = 2


@dataclass(frozen=True, slots=True)
class PassageMask:
    """Passages that a search must not return.

    Attributes:
        rows: sorted unique passage rows, int64.
        num_passages: N, the size of the passage file the rows belong to.
    """

    rows: npt.NDArray[np.int64]
    num_passages: int

    def __post_init__(self) -> None:
        if self.rows.size and (self.rows[0] < 0 or self.rows[-1] >= self.num_passages):
            raise InputError(
                f"excluded passage row {int(self.rows[-1])} is outside 0..{self.num_passages - 1}"
            )

    @classmethod
    def of(cls, rows: npt.ArrayLike, *, num_passages: int) -> PassageMask:
        """Builds a mask from rows in any order, with or without repeats."""
        return cls(np.unique(np.asarray(rows, dtype=np.int64)), num_passages)

    def bitmap(self) -> npt.NDArray[np.uint8]:
        """One byte a passage, 1 = excluded. Shape [N]."""
        excluded = np.zeros(self.num_passages, dtype=np.uint8)
        excluded[self.rows] = 1
        return excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Top passages per query, best first, ties by passage row.

    Attributes:
        passage_QK: passage rows, int64; NO_PASSAGE pads.
        score_QK: scores, float32, non-increasing along K; 0 where padded.
        count_Q: hits of each query, int32.
        status_Q: RetrievalStatus of each query, int8.
    """

    passage_QK: npt.NDArray[np.int64]
    score_QK: npt.NDArray[np.float32]
    count_Q: npt.NDArray[np.int32]
    status_Q: npt.NDArray[np.int8]

    def __post_init__(self) -> None:
        num_queries, _ = self.passage_QK.shape
        assert self.score_QK.shape == self.passage_QK.shape
        assert self.count_Q.shape == self.status_Q.shape == (num_queries,)


class Retriever(Protocol):
    """A searchable, immutable index over one passage file."""

    @property
    def num_passages(self) -> int:
        """N, the passages the index was built from."""
        ...

    def search(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None = None
    ) -> Candidates:
        """Finds the k best passages of every query.

        Args:
            queries: Q query texts, in stream order where they come from one stream (engines may
                exploit that neighbours overlap; results never depend on it).
            k: K, at least 1. Fewer hits than k is legal.
            exclude: passages that must not be returned; k hits remain where there are k others.

        Returns:
            Candidates of shape [Q, K].

        Raises:
            InputError: k below 1, a mask of another passage file, or text that is not Unicode.
        """
        ...
