"""Collects segments and wants one by one, then freezes them into `Requests`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ralm_engine.lm.requests import Int32Array, Requests


class RequestBuilder:
    """Append-only. Wants must be added leaf by leaf, in the order the leaves were added."""

    def __init__(self) -> None:
        self._tokens: list[Int32Array] = []
        self._position: list[int] = []
        self._sees: list[Sequence[tuple[int, int]]] = []
        self._owner: list[Int32Array] = []
        self._segment: list[Int32Array] = []
        self._offset: list[Int32Array] = []
        self._target: list[Int32Array] = []
        self._num_wants = 0

    def add_segment(
        self, tokens: Int32Array, *, position: int = 0, sees: Sequence[tuple[int, int]] = ()
    ) -> int:
        """Adds a segment.

        Args:
            tokens: its token ids.
            position: position id of its first token.
            sees: (earlier segment, visible leading tokens) pairs, in row order.

        Returns:
            The segment's number.
        """
        self._tokens.append(tokens)
        self._position.append(position)
        self._sees.append(sees)
        return len(self._tokens) - 1

    def add_wants(
        self, leaf: int, *, predictor_segment: int, offsets: Int32Array, targets: Int32Array
    ) -> int:
        """Asks for the NLL of `targets`, each predicted by the token at `offsets`.

        Returns:
            Number of the first of these wants; the others follow it.
        """
        first = self._num_wants
        self._owner.append(np.full(targets.size, leaf, dtype=np.int32))
        self._segment.append(np.full(targets.size, predictor_segment, dtype=np.int32))
        self._offset.append(offsets)
        self._target.append(targets)
        self._num_wants += targets.size
        return first

    def build(self) -> Requests:
        """Freezes what was added."""
        edges = [edge for sees in self._sees for edge in sees]
        return Requests(
            token_ids_T=_concatenated(self._tokens),
            cu_tokens_S1=_cumulated([t.size for t in self._tokens]),
            position_S=np.asarray(self._position, dtype=np.int32),
            cu_sees_S1=_cumulated([len(s) for s in self._sees]),
            sees_E=np.asarray([e[0] for e in edges], dtype=np.int32),
            sees_len_E=np.asarray([e[1] for e in edges], dtype=np.int32),
            owner_W=_concatenated(self._owner),
            predictor_segment_W=_concatenated(self._segment),
            predictor_offset_W=_concatenated(self._offset),
            target_W=_concatenated(self._target),
        )


def _concatenated(parts: list[Int32Array]) -> Int32Array:
    return np.concatenate(parts, dtype=np.int32) if parts else np.zeros(0, dtype=np.int32)


def _cumulated(sizes: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
