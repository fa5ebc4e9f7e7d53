"""Segment attention in Triton: one launch for visible ranges and the causal part.

One program takes a tile of packed tokens for a group of query heads that share a key head: its
rows are (token, head) pairs, so K and V are read once for the group. It walks the tile's full
spans without masks, then its masked spans, with one online softmax in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

from ralm_kernels.heuristics import AttentionLaunch, attention_launch
from ralm_kernels.plan import SegmentPlan, check_packed, filled_segments
from ralm_kernels.tiles import tile_work
from ralm_kernels.triton_math import (
    LAUNCH_OPTIONS,
    device_capability,
    is_interpreted,
    product,
)

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TritonPlan:
    """A `SegmentPlan` as a work list on the device, for one geometry of heads.

    The columns are those of `tiles.TileWork`; `heads` query heads are computed by one program.
    """

    num_tokens: int
    num_blocks: int
    heads: int
    launch: AttentionLaunch
    tiles_N6: torch.Tensor
    full_F2: torch.Tensor
    masked_P4: torch.Tensor
    segment_begin_T: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedPlan:
    """A plan whose work lists are built when the first layer shows its heads, then kept."""

    plan: SegmentPlan
    uploaded: dict[tuple[object, ...], TritonPlan] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """Number of packed tokens, T."""
        return self.plan.num_tokens

    def for_inputs(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> TritonPlan:
        """The work list for tensors of this geometry, dtype and device."""
        geometry = (q.shape[1], k.shape[1], q.shape[2], v.shape[2], q.dtype, q.device)
        if geometry not in self.uploaded:
            self.uploaded[geometry] = upload(
                self.plan,
                num_heads=q.shape[1],
                num_key_heads=k.shape[1],
                head_size=q.shape[2],
                value_size=v.shape[2],
                dtype=q.dtype,
                device=q.device,
            )
        return self.uploaded[geometry]


def prepare(plan: SegmentPlan) -> PreparedPlan:
    """What a batch's layers share; free, since the work waits for the first layer."""
    return PreparedPlan(plan=plan)


def upload(
    plan: SegmentPlan,
    *,
    num_heads: int,
    num_key_heads: int,
    head_size: int,
    dtype: torch.dtype,
    device: torch.device | str,
    value_size: int | None = None,
    launch: AttentionLaunch | None = None,
) -> TritonPlan:
    """Cuts the batch into tiles and uploads the work list, once for all layers.

    Args:
        plan: what every token sees.
        num_heads: H.
        num_key_heads: Hkv, which divides H.
        head_size: D, up to 256.
        dtype: of q, k and v.
        device: where q, k and v live.
        value_size: Dv; D where None.
        launch: overrides the heuristics, for benchmarks.
    """
    value_size = head_size if value_size is None else value_size
    group = num_heads // num_key_heads
    if launch is None:
        launch = attention_launch(
            head_size=head_size,
            value_size=value_size,
            dtype=dtype,
            max_rows=group * _longest_run(plan),
            capability=device_capability(device),
        )
    heads = max(n for n in range(1, group + 1) if group % n == 0 and n <= launch.block_rows)
    work = tile_work(
        plan, tile_tokens=launch.block_rows // heads, block_keys=launch.block_keys
    )  # fmt: skip
    columns = {
        name: torch.from_numpy(getattr(work, name)).to(device, non_blocking=True)
        for name in ("tiles_N6", "full_F2", "masked_P4", "segment_begin_T")
    }
    return TritonPlan(
        num_tokens=plan.num_tokens,
        num_blocks=work.num_blocks,
        heads=heads,
        launch=launch,
        **columns,
    )


def segment_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: SegmentPlan | PreparedPlan | TritonPlan,
    *,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a packed batch in one launch. Finite inputs; no synchronisation.

    Args:
        q: [T, H, D] bfloat16, float16 or float32, last dimension contiguous; D up to 256.
        k: [T, Hkv, D]; query head h reads key head h // (H / Hkv).
        v: [T, Hkv, Dv].
        plan: what `prepare` made once for all layers, what `upload` made for this geometry, or
            the plan itself, which is then cut into tiles in every call.
        scale: factor of the scores, before softmax; above 0.

    Returns:
        (out [T, H, Dv] in q's dtype, lse float32 [T, H], natural log).

    Raises:
        ValueError: shapes or dtypes disagree with each other or with the plan, or scale <= 0.
    """
    check_packed(q, k, v, num_tokens=plan.num_tokens)
    if scale <= 0.0:
        msg = f"segment attention: scale must be above 0, got {scale}"
        raise ValueError(msg)
    if isinstance(plan, SegmentPlan):
        plan = prepare(plan)
    if isinstance(plan, PreparedPlan):
        plan = plan.for_inputs(q, k, v)
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    out = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    num_tiles = plan.tiles_N6.shape[0]
    if num_tiles:
        _launch(q, k, v, out, lse, plan, scale=scale)
    return out, lse


def _longest_run(plan: SegmentPlan) -> int:
    """Most consecutive tokens that see the same spans: what a tile can be filled with."""
    longest, run, previous = 0, 0, None
    for begin, end, spans in filled_segments(plan):
        run = run + end - begin if spans and spans == previous else end - begin
        longest, previous = max(longest, run), spans
    return longest


def _launch(q, k, v, out, lse, plan: TritonPlan, *, scale: float) -> None:
    num_heads, launch = q.shape[1], plan.launch
    grid = (plan.tiles_N6.shape[0] * (num_heads // plan.heads),)
    _segment_attention_kernel[grid](
        q, k, v, out, lse,
        plan.tiles_N6, plan.full_F2, plan.masked_P4, plan.segment_begin_T,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        out.stride(0), out.stride(1), lse.stride(0),
        num_heads // plan.heads, scale * LOG2_E,
        HEADS=plan.heads, GROUP=num_heads // k.shape[1],
        HEAD_SIZE=q.shape[2], VALUE_SIZE=v.shape[2],
        BLOCK_ROWS=launch.block_rows, BLOCK_KEYS=launch.block_keys,
        BLOCK_HEAD=launch.block_head, BLOCK_VALUE=launch.block_value,
        PRECISION=launch.precision, WIDEN=is_interpreted(),
        num_warps=launch.num_warps, num_stages=launch.num_stages, **LAUNCH_OPTIONS,
    )  # fmt: skip


@triton.jit
def _absorb(scores, values, acc, top, total, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    """One step of the online softmax, base 2; a row that has seen nothing stays (0, -inf, 0)."""
    new_top = tl.maximum(top, tl.max(scores, 1))
    anchor = tl.where(new_top == -float("inf"), 0.0, new_top)
    mass = tl.exp2(scores - anchor[:, None])
    keep = tl.exp2(top - anchor)
    total = total * keep + tl.sum(mass, 1)
    acc = product(mass.to(values.dtype), values, acc * keep[:, None], PRECISION, WIDEN)
    return acc, new_top, total


@triton.jit
def _segment_attention_kernel(
    q, k, v, out, lse,
    tiles, full_spans, masked_spans, segment_begin,
    stride_qt, stride_qh, stride_kt, stride_kh, stride_vt, stride_vh,
    stride_ot, stride_oh, stride_lt,
    num_head_groups, scale_log2,
    HEADS: tl.constexpr, GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    BLOCK_HEAD: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    # Head groups vary fastest: programs that run together read the same tokens, and tiles start
    # in the order of the list, heaviest first.
    program = tl.program_id(0)
    tile = tiles + (program // num_head_groups) * 6
    head_begin = (program % num_head_groups) * HEADS
    token_begin, token_end = tl.load(tile), tl.load(tile + 1)

    row = tl.arange(0, BLOCK_ROWS)
    token = token_begin + row // HEADS
    head = head_begin + row % HEADS
    is_row = token < token_end
    dim = tl.arange(0, BLOCK_HEAD)
    value_dim = tl.arange(0, BLOCK_VALUE)
    key_row = tl.arange(0, BLOCK_KEYS)

    token64 = token.to(tl.int64)
    queries = tl.load(
        q + (token64 * stride_qt + head * stride_qh)[:, None] + dim[None, :],
        mask=is_row[:, None] & (dim < HEAD_SIZE)[None, :],
        other=0.0,
    )
    key_head = head_begin // GROUP
    k_tile = k + key_head * stride_kh + key_row[None, :] * stride_kt + dim[:, None]
    v_tile = v + key_head * stride_vh + key_row[:, None] * stride_vt + value_dim[None, :]

    acc = tl.zeros([BLOCK_ROWS, BLOCK_VALUE], tl.float32)
    top = tl.full([BLOCK_ROWS], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    nothing = tl.zeros([BLOCK_ROWS, BLOCK_KEYS], tl.float32)

    for span in range(tl.load(tile + 2), tl.load(tile + 3)):
        begin, end = tl.load(full_spans + span * 2), tl.load(full_spans + span * 2 + 1)
        for at in range(begin, end, BLOCK_KEYS):
            at64 = tl.cast(at, tl.int64)
            if HEAD_SIZE == BLOCK_HEAD:
                keys = tl.load(k_tile + at64 * stride_kt)
            else:
                keys = tl.load(
                    k_tile + at64 * stride_kt, mask=(dim < HEAD_SIZE)[:, None], other=0.0
                )
            scores = product(queries, keys, nothing, PRECISION, WIDEN) * scale_log2
            if VALUE_SIZE == BLOCK_VALUE:
                values = tl.load(v_tile + at64 * stride_vt)
            else:
                values = tl.load(
                    v_tile + at64 * stride_vt, mask=(value_dim < VALUE_SIZE)[None, :], other=0.0
                )
            acc, top, total = _absorb(scores, values, acc, top, total, PRECISION, WIDEN)

    own_first = tl.load(segment_begin + token, mask=is_row, other=0)
    for span in range(tl.load(tile + 4), tl.load(tile + 5)):
        bounds = masked_spans + span * 4
        begin, end = tl.load(bounds), tl.load(bounds + 1)
        window_begin, window_end = tl.load(bounds + 2), tl.load(bounds + 3)
        sees = (token >= window_begin) & (token < window_end)
        # The first key a row may see in this span: its segment's for the tile's own tokens, else
        # any or none. The last is the row's own token, which lies behind every earlier range.
        first = tl.where(window_begin < 0, own_first, tl.where(sees, 0, 2147483647))
        for at in range(begin, end, BLOCK_KEYS):
            at64 = tl.cast(at, tl.int64)
            key = at + key_row
            is_key = key < end
            keys = tl.load(
                k_tile + at64 * stride_kt,
                mask=is_key[None, :] & (dim < HEAD_SIZE)[:, None],
                other=0.0,
            )
            scores = product(queries, keys, nothing, PRECISION, WIDEN) * scale_log2
            visible = (key[None, :] >= first[:, None]) & (key[None, :] <= token[:, None])
            scores = tl.where(visible & is_key[None, :], scores, -float("inf"))
            values = tl.load(
                v_tile + at64 * stride_vt,
                mask=is_key[:, None] & (value_dim < VALUE_SIZE)[None, :],
                other=0.0,
            )
            acc, top, total = _absorb(scores, values, acc, top, total, PRECISION, WIDEN)

    seen = tl.where(total == 0.0, 1.0, total)
    acc = acc / seen[:, None]
    tl.store(
        out + (token64 * stride_ot + head * stride_oh)[:, None] + value_dim[None, :],
        acc.to(out.dtype.element_ty),
        mask=is_row[:, None] & (value_dim < VALUE_SIZE)[None, :],
    )
    tl.store(lse + token64 * stride_lt + head, (top + tl.log2(seen)) * 0.6931471805599453, is_row)
