"""BM25 as Lucene computes it, in NumPy: the specification of the native engine.

Short, obvious and slow: every passage is scored for every query. Only the analyzer is shared with
the native engine; golden term lists pin it.

Legend: N passages, T distinct terms, Q queries, K candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ralm_engine._native import MAX_QUERY_TERMS, analyze
from ralm_engine.retrieval.protocol import (
    NO_PASSAGE,
    Candidates,
    PassageMask,
    RetrievalStatus,
)

_NUM_EXACT_LENGTHS = 24
_MAX_TERM_FREQUENCY = 0xFFFF


def lucene_length(length: int) -> int:
    """The length that Lucene remembers of a passage of `length` terms: three bits of mantissa."""
    rest = length - _NUM_EXACT_LENGTHS
    shift = max(rest.bit_length() - 4, 0)
    return length if rest < 0 else _NUM_EXACT_LENGTHS + (rest >> shift << shift)


class ReferenceBm25:
    """Scores all of a list of texts.

    Args:
        texts: N passages.
        k1: saturation of the term frequency.
        b: weight of the passage length.
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        bags = [Counter(analyze(text)) for text in texts]
        lengths = [sum(bag.values()) for bag in bags]
        self._num_passages = len(bags)
        self._num_nonempty = sum(length > 0 for length in lengths)
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for row, bag in enumerate(bags):
            for term, frequency in bag.items():
                posting = (row, min(frequency, _MAX_TERM_FREQUENCY))
                self._postings.setdefault(term, []).append(posting)
        mean = (
            np.float32(sum(lengths) / self._num_nonempty) if self._num_nonempty else np.float32(1)
        )
        one = np.float32(1)
        short = np.array([lucene_length(length) for length in lengths], dtype=np.float32)
        with np.errstate(divide="ignore"):
            self._inverse_norm = one / (
                np.float32(k1) * ((one - np.float32(b)) + np.float32(b) * short / mean)
            )

    @property
    def num_passages(self) -> int:
        """N."""
        return self._num_passages

    def search(
        self, queries: Sequence[str], k: int, *, exclude: PassageMask | None = None
    ) -> Candidates:
        """Finds the k best passages of every query; see Retriever.search."""
        result = Candidates(
            passage_QK=np.full((len(queries), k), NO_PASSAGE, dtype=np.int64),
            score_QK=np.zeros((len(queries), k), dtype=np.float32),
            count_Q=np.zeros(len(queries), dtype=np.int32),
            status_Q=np.zeros(len(queries), dtype=np.int8),
        )
        for i, query in enumerate(queries):
            terms = Counter(analyze(query))
            result.status_Q[i] = _status(terms)
            kept = dict(list(terms.items())[:MAX_QUERY_TERMS])
            scores, matched = self.scores(kept)
            if exclude is not None:
                matched[exclude.rows] = False
            rows = np.flatnonzero(matched)
            # Stable: equal scores stay in the order of rows.
            best = rows[np.argsort(-scores[rows], kind="stable")][:k]
            result.passage_QK[i, : best.size] = best
            result.score_QK[i, : best.size] = scores[best]
            result.count_Q[i] = best.size
        return result

    def scores(
        self, terms: dict[str, int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Score of every passage, and whether it holds any term. Shapes [N].

        Args:
            terms: multiplicity of each distinct term; their order is the order of summation.
        """
        total = np.zeros(self.num_passages, dtype=np.float64)
        matched = np.zeros(self.num_passages, dtype=np.bool_)
        one = np.float32(1)
        for term, multiplicity in terms.items():
            if term not in self._postings:
                continue
            rows, frequencies = np.array(self._postings[term]).T
            weight = np.float32(multiplicity) * self._idf(rows.size)
            norms = self._inverse_norm[rows]
            total[rows] += weight - weight / (one + frequencies.astype(np.float32) * norms)
            matched[rows] = True
        return total.astype(np.float32), matched

    def _idf(self, df: int) -> np.float32:
        return np.float32(np.log(1 + (self._num_nonempty - df + 0.5) / (df + 0.5)))


def _status(terms: Counter[str]) -> RetrievalStatus:
    if not terms:
        return RetrievalStatus.NO_QUERY_TERMS
    if len(terms) > MAX_QUERY_TERMS:
        return RetrievalStatus.TRUNCATED_QUERY
    return RetrievalStatus.OK
