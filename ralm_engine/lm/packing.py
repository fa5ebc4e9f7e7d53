"""Requests -> batches: every leaf once, each shared segment once per batch, no padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ralm_engine.lm.requests import Int32Array, Int64Array, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass.

    Attributes:
        segments: request segments in packed order; all that a segment sees stands before it. In a
            padded batch: the leaves, one padded row each.
        wants: request wants answered by this pass.
        num_tokens: tokens that go through the model, padding included.
    """

    segments: Int32Array
    wants: Int64Array
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """All forward passes for some requests, and what they cost.

    Attributes:
        batches: in execution order.
        rows: logical rows (leaves).
        tokens_asked: tokens of all rows if nothing were shared.
        tokens_forwarded: tokens that go through the model.
        attended: (query, key) pairs over all passes.
        wants: NLLs asked for.
    """

    batches: tuple[Batch, ...]
    rows: int
    tokens_asked: int
    tokens_forwarded: int
    attended: int
    wants: int

    @property
    def share_saved(self) -> float:
        """Share of the asked tokens that sharing saved, 0..1; negative where padding added."""
        return 1.0 - self.tokens_forwarded / self.tokens_asked if self.tokens_asked else 0.0


def pack(requests: Requests, *, max_tokens: int, one_row_per_batch: bool = False) -> PackPlan:
    """Groups leaves that see the same segment and fills batches up to the token budget.

    A row longer than the budget gets a batch of its own. O(S + E + W).

    Args:
        requests: what is asked.
        max_tokens: token budget of a batch.
        one_row_per_batch: gives every row its own forward pass, so that its numbers cannot depend
            on what else is scored (deterministic mode).
    """
    leaves = requests.leaves()
    budget = 0 if one_row_per_batch else max_tokens
    groups = _fill(requests, _grouped(requests, leaves), budget)
    attended_S = requests.attended_S()
    batches, attended = [], 0
    for members in groups:
        attended += int(attended_S[members].sum())
        batches.append(_batch(requests, members, int(requests.lengths_S[members].sum())))
    return _plan(requests, batches, attended)


def pad(requests: Requests, *, max_tokens: int, one_row_per_batch: bool = False) -> PackPlan:
    """Batches of whole rows of similar length, for models that packed attention cannot express.

    Args:
        requests: what is asked.
        max_tokens: budget of a batch, padding included.
        one_row_per_batch: as for `pack`.
    """
    leaves = requests.leaves()
    lengths_S = requests.row_lengths_S()
    leaves = leaves[np.argsort(-lengths_S[leaves], kind="stable")]
    batches, attended, begin = [], 0, 0
    while begin < leaves.size:
        longest = max(1, int(lengths_S[leaves[begin]]))
        num_rows = 1 if one_row_per_batch else max(1, max_tokens // longest)
        members = np.sort(leaves[begin : begin + num_rows])
        attended += members.size * longest * (longest + 1) // 2
        batches.append(_batch(requests, members.tolist(), members.size * longest))
        begin += num_rows
    return _plan(requests, batches, attended)


def _plan(requests: Requests, batches: list[Batch], attended: int) -> PackPlan:
    leaves = requests.leaves()
    return PackPlan(
        batches=tuple(batches),
        rows=leaves.size,
        tokens_asked=int(requests.row_lengths_S()[leaves].sum()),
        tokens_forwarded=sum(batch.num_tokens for batch in batches),
        attended=attended,
        wants=requests.num_wants,
    )


def _batch(requests: Requests, members: list[int], num_tokens: int) -> Batch:
    first = np.searchsorted(requests.owner_W, members, side="left")
    last = np.searchsorted(requests.owner_W, members, side="right")
    ranges = [np.arange(a, b, dtype=np.int64) for a, b in zip(first, last, strict=True)]
    return Batch(
        segments=np.asarray(members, dtype=np.int32),
        wants=np.concatenate(ranges),
        num_tokens=num_tokens,
    )


def _grouped(requests: Requests, leaves: Int32Array) -> Int32Array:
    """Leaves that see the same first segment made adjacent, groups in order of first use."""
    if not leaves.size:
        return leaves
    sees_any = np.diff(requests.cu_sees_S1)[leaves] > 0
    key = leaves.copy()
    key[sees_any] = requests.sees_E[requests.cu_sees_S1[leaves[sees_any]]]
    _, first_use, group = np.unique(key, return_index=True, return_inverse=True)
    return leaves[np.argsort(first_use[group], kind="stable")]


def _fill(requests: Requests, leaves: Iterable[int], budget: int) -> Iterator[list[int]]:
    lengths = requests.lengths_S.tolist()
    members: dict[int, None] = {}
    used = 0
    for leaf in leaves:
        row = requests.closure(int(leaf))
        new = [s for s in row if s not in members]
        cost = sum(lengths[s] for s in new)
        if members and used + cost > budget:
            yield list(members)
            members, used, new = {}, 0, row
            cost = sum(lengths[s] for s in row)
        members.update(dict.fromkeys(new))
        used += cost
    if members:
        yield list(members)
