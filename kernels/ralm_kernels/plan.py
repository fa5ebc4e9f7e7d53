"""What every packed token may attend to, as columns.

Shape legend, used by the whole package: `S` segments, `R` visible ranges, `T` packed tokens,
`H` query heads, `Hkv` key/value heads, `D` head size of q and k, `Dv` head size of v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentPlan:
    """One packed batch: who sees what.

    Token `i` of segment `s` attends to every token of the ranges `s` lists, in full, and causally
    to its own segment up to and including itself. The columns live on the CPU: they are read by
    planners, and each backend's `prepare` turns them into what its device needs, once a batch.

    Attributes:
        cu_tokens_S1: int32 or int64 [S+1]; segment s owns packed tokens cu[s]:cu[s+1]. A segment
            may be empty.
        cu_ranges_S1: int32 or int64 [S+1]; segment s sees ranges cu[s]:cu[s+1].
        range_begin_R: int32 or int64 [R]; first packed token of a range.
        range_end_R: int32 or int64 [R]; one past its last token. A range may be empty, lies before
            its segment's own tokens, and shares no token with another range of the same segment.

    Raises:
        ValueError: a column is of the wrong shape, type or device, or breaks the rules above; the
            message names the first offending segment or range.
    """

    cu_tokens_S1: torch.Tensor
    cu_ranges_S1: torch.Tensor
    range_begin_R: torch.Tensor
    range_end_R: torch.Tensor

    def __post_init__(self) -> None:
        self.validate()

    @classmethod
    def from_lists(
        cls, lengths: Sequence[int], visible: Sequence[Sequence[tuple[int, int]]] | None = None
    ) -> SegmentPlan:
        """Builds a plan from segment lengths and each segment's (begin, end) token ranges.

        Args:
            lengths: tokens of each segment, in packed order.
            visible: per segment its absolute ranges; None where no segment sees another.
        """
        visible = [()] * len(lengths) if visible is None else visible
        flat = [pair for ranges in visible for pair in ranges]
        return cls(
            cu_tokens_S1=_int64([0, *accumulate(lengths)]),
            cu_ranges_S1=_int64([0, *accumulate(len(ranges) for ranges in visible)]),
            range_begin_R=_int64([begin for begin, _ in flat]),
            range_end_R=_int64([end for _, end in flat]),
        )

    @property
    def num_segments(self) -> int:
        """Number of segments, S."""
        return self.cu_tokens_S1.numel() - 1

    @property
    def num_tokens(self) -> int:
        """Number of packed tokens, T."""
        return int(self.cu_tokens_S1[-1])

    @property
    def num_ranges(self) -> int:
        """Number of visible ranges, R, empty ones included."""
        return self.range_begin_R.numel()

    @property
    def num_pairs(self) -> int:
        """Number of (query, key) pairs; attention costs 2 * H * (D + Dv) FLOP for each."""
        lengths_S = self.cu_tokens_S1.long().diff()
        own = (lengths_S * (lengths_S + 1) // 2).sum()
        widths_R = (self.range_end_R - self.range_begin_R).long()
        return int(own + (widths_R * lengths_S[self.segment_of_range()]).sum())

    def segment_of_range(self) -> torch.Tensor:
        """The segment that lists each range, int64 [R]."""
        counts_S = self.cu_ranges_S1.long().diff()
        return torch.repeat_interleave(torch.arange(self.num_segments), counts_S)

    def validate(self) -> None:
        """Checks every rule of the class docstring. Linear in S and R log R."""
        _check_columns(self)
        _check_ranges(self)


def check_packed(
    q_THD: torch.Tensor, k_THD: torch.Tensor, v_THD: torch.Tensor, *, num_tokens: int
) -> None:
    """Checks the tensors of one packed attention call against each other and the plan.

    Args:
        q_THD: [T, H, D].
        k_THD: [T, Hkv, D], H a multiple of Hkv.
        v_THD: [T, Hkv, Dv].
        num_tokens: T of the plan.

    Raises:
        ValueError: the first mismatch, with the shapes.
    """
    shapes = f"q {tuple(q_THD.shape)}, k {tuple(k_THD.shape)}, v {tuple(v_THD.shape)}"
    if not q_THD.ndim == k_THD.ndim == v_THD.ndim == 3:
        msg = f"segment attention: q, k and v must be [tokens, heads, head size], got {shapes}"
        raise ValueError(msg)
    if not q_THD.shape[0] == k_THD.shape[0] == v_THD.shape[0] == num_tokens:
        msg = f"segment attention: the plan packs {num_tokens} tokens, got {shapes}"
        raise ValueError(msg)
    if q_THD.shape[2] != k_THD.shape[2] or k_THD.shape[1] != v_THD.shape[1]:
        msg = f"segment attention: k must share q's head size and v's head count, got {shapes}"
        raise ValueError(msg)
    if k_THD.shape[1] == 0 or q_THD.shape[1] % k_THD.shape[1]:
        msg = f"segment attention: query heads must be a multiple of key heads, got {shapes}"
        raise ValueError(msg)
    if not q_THD.dtype == k_THD.dtype == v_THD.dtype:
        dtypes = f"q {q_THD.dtype}, k {k_THD.dtype}, v {v_THD.dtype}"
        msg = f"segment attention: q, k and v must share one dtype, got {dtypes}"
        raise ValueError(msg)


def joined(spans: list[Span]) -> tuple[Span, ...]:
    """Sorts disjoint spans, drops empty ones and joins those that touch."""
    out: list[Span] = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return tuple(out)


def filled_segments(plan: SegmentPlan) -> list[tuple[int, int, tuple[Span, ...]]]:
    """The segments that have tokens, each as (begin, end, the token spans it sees, joined)."""
    cu_tokens, cu_ranges = plan.cu_tokens_S1.tolist(), plan.cu_ranges_S1.tolist()
    ranges = list(zip(plan.range_begin_R.tolist(), plan.range_end_R.tolist(), strict=True))
    return [
        (cu_tokens[s], cu_tokens[s + 1], joined(ranges[cu_ranges[s] : cu_ranges[s + 1]]))
        for s in range(plan.num_segments)
        if cu_tokens[s + 1] > cu_tokens[s]
    ]


def _int64(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _check_columns(plan: SegmentPlan) -> None:
    for name in ("cu_tokens_S1", "cu_ranges_S1", "range_begin_R", "range_end_R"):
        column = getattr(plan, name)
        is_index = column.ndim == 1 and column.dtype in (torch.int32, torch.int64)
        if not is_index or column.device.type != "cpu":
            msg = (
                f"segment plan: {name} must be a 1-d int32 or int64 tensor on the CPU, "
                f"got {column.ndim}-d {column.dtype} on {column.device}"
            )
            raise ValueError(msg)
    if plan.cu_tokens_S1.numel() == 0 or plan.cu_tokens_S1.numel() != plan.cu_ranges_S1.numel():
        msg = (
            "segment plan: cu_tokens_S1 and cu_ranges_S1 need S+1 entries each, got "
            f"{plan.cu_tokens_S1.numel()} and {plan.cu_ranges_S1.numel()}"
        )
        raise ValueError(msg)
    if plan.range_begin_R.numel() != plan.range_end_R.numel():
        msg = (
            f"segment plan: {plan.range_begin_R.numel()} range begins but "
            f"{plan.range_end_R.numel()} range ends"
        )
        raise ValueError(msg)
    for name, last in (("cu_tokens_S1", None), ("cu_ranges_S1", plan.num_ranges)):
        column = getattr(plan, name)
        falls = (column.diff() < 0).nonzero()
        if int(column[0]) != 0 or falls.numel():
            where = int(falls[0]) if falls.numel() else 0
            msg = f"segment plan: {name} must start at 0 and never fall; see entry {where}"
            raise ValueError(msg)
        if last is not None and int(column[-1]) != last:
            msg = f"segment plan: {name} ends at {int(column[-1])}, but there are {last} ranges"
            raise ValueError(msg)


def _check_ranges(plan: SegmentPlan) -> None:
    begin_R, end_R = plan.range_begin_R.long(), plan.range_end_R.long()
    segment_R = plan.segment_of_range()
    limit_R = plan.cu_tokens_S1.long()[segment_R]
    bad = ((begin_R < 0) | (end_R < begin_R) | (end_R > limit_R)).nonzero()
    if bad.numel():
        r = int(bad[0])
        msg = (
            f"segment plan: range {r} is {int(begin_R[r])}:{int(end_R[r])}, but segment "
            f"{int(segment_R[r])} may see only tokens 0:{int(limit_R[r])}, those before its own"
        )
        raise ValueError(msg)
    filled = (end_R > begin_R).nonzero().flatten()
    by_segment = filled[torch.argsort(segment_R[filled] * (plan.num_tokens + 1) + begin_R[filled])]
    here, after = by_segment[:-1], by_segment[1:]
    clash = (segment_R[here] == segment_R[after]) & (end_R[here] > begin_R[after])
    if clash.any():
        first = int(clash.nonzero()[0])
        msg = (
            f"segment plan: ranges {int(here[first])} and {int(after[first])} of segment "
            f"{int(segment_R[here[first]])} share tokens; each token may be seen once"
        )
        raise ValueError(msg)
