"""What the scorer is asked: segments of tokens, what each may see, and which NLLs are wanted.

Legend: S segments, T distinct tokens, E edges (one segment sees another), W wanted NLLs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """A forest of segments in CSR form.

    A segment attends to itself causally and to the leading tokens of the earlier segments it
    sees. A segment that owns a want is a *leaf*: leaf and all it sees form one logical row.

    Attributes:
        token_ids_T: tokens of all segments, laid end to end.
        cu_tokens_S1: segment s owns tokens cu[s]:cu[s+1].
        position_S: position id of a segment's first token; it counts on from there.
        cu_sees_S1: segment s sees edges cu[s]:cu[s+1], in row order.
        sees_E: number of an earlier segment.
        sees_len_E: how many of its leading tokens are visible.
        owner_W: leaf whose row the want belongs to; non-decreasing.
        predictor_segment_W: the segment, owner or seen by it, that holds the predicting token.
        predictor_offset_W: offset of the predicting token in that segment.
        target_W: token id whose NLL is wanted at that position.
    """

    token_ids_T: Int32Array
    cu_tokens_S1: Int64Array
    position_S: Int32Array
    cu_sees_S1: Int64Array
    sees_E: Int32Array
    sees_len_E: Int32Array
    owner_W: Int32Array
    predictor_segment_W: Int32Array
    predictor_offset_W: Int32Array
    target_W: Int32Array

    def __post_init__(self) -> None:
        assert self.cu_tokens_S1[-1] == self.token_ids_T.size
        assert self.cu_sees_S1[-1] == self.sees_E.size == self.sees_len_E.size
        assert self.position_S.size == self.num_segments
        assert (np.diff(self.owner_W) >= 0).all()
        viewer_E = np.repeat(np.arange(self.num_segments), np.diff(self.cu_sees_S1))
        assert (self.sees_E < viewer_E).all(), "a segment may see earlier segments only"
        assert (self.sees_len_E <= self.lengths_S[self.sees_E]).all()
        assert (self.predictor_offset_W >= 0).all()
        assert (self.predictor_offset_W < self.lengths_S[self.predictor_segment_W]).all()

    @property
    def num_segments(self) -> int:
        """S."""
        return self.cu_tokens_S1.size - 1

    @property
    def num_wants(self) -> int:
        """W."""
        return self.target_W.size

    @property
    def lengths_S(self) -> Int64Array:
        """Tokens of each segment."""
        return np.diff(self.cu_tokens_S1)

    def leaves(self) -> Int32Array:
        """Segments that own at least one want, ascending."""
        return np.unique(self.owner_W)

    def sees(self, segment: int) -> Int32Array:
        """Segments that `segment` sees, in row order."""
        return self.sees_E[self.cu_sees_S1[segment] : self.cu_sees_S1[segment + 1]]

    def closure(self, segment: int) -> list[int]:
        """The segment and all it sees, directly or through others, in ascending order."""
        found = {segment}
        pending = [segment]
        while pending:
            new = set(self.sees(pending.pop()).tolist()) - found
            found |= new
            pending.extend(new)
        return sorted(found)

    def tokens(self, segment: int) -> Int32Array:
        """Tokens of one segment (a view)."""
        return self.token_ids_T[self.cu_tokens_S1[segment] : self.cu_tokens_S1[segment + 1]]

    def row_lengths_S(self) -> Int64Array:
        """Tokens of the logical row that ends in each segment, before anything is shared."""
        visible_S = np.zeros(self.num_segments, dtype=np.int64)
        viewer_E = np.repeat(np.arange(self.num_segments), np.diff(self.cu_sees_S1))
        np.add.at(visible_S, viewer_E, self.sees_len_E)
        return visible_S + self.lengths_S

    def attended_S(self) -> Int64Array:
        """(query, key) pairs each segment's own tokens attend to: the attention work."""
        own = self.lengths_S
        pairs: Int64Array = own * (self.row_lengths_S() - own) + own * (own + 1) // 2
        return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What the model said at each want, float32 (rank int32), in request order."""

    nll_W: npt.NDArray[np.float32]
    entropy_W: npt.NDArray[np.float32]
    rank_W: npt.NDArray[np.int32]
