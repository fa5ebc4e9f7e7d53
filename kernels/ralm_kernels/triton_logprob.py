"""Token log-prob in Triton: the head's logits are reduced tile by tile and never stored.

Every program takes a block of rows and a slice of the vocabulary, and leaves five numbers a row:
its target's logit, the maximum, the mass and the first moment under it, and how many entries beat
the target. The slices are then merged; that is `[slices, M]` numbers, whatever the vocabulary is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ralm_kernels.heuristics import LogprobLaunch, logprob_launch
from ralm_kernels.logprob import TokenLogprob, check_head
from ralm_kernels.triton_math import LAUNCH_OPTIONS, is_interpreted, product


@torch.no_grad()
def token_logprob(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    launch: LogprobLaunch | None = None,
) -> TokenLogprob:
    """Scores targets under logits = softcap * tanh((hidden @ weight.T + bias) * scale / softcap).

    Logits are float32 whatever the inputs are. Scratch memory is 16 bytes a row and vocabulary
    slice. Ranks count logits computed in the same order as the target's own, so that equal rows
    of the head tie exactly.

    Args:
        hidden: [M, D] bfloat16, float16 or float32, last dimension contiguous.
        weight: [V, D], the head's weight, in the dtype of `hidden`.
        targets: int64 [M], in 0..V-1.
        bias: [V] or None.
        logit_scale: factor of the logits, before the cap.
        softcap: soft cap of the logits, None for none.
        launch: overrides the heuristics, for benchmarks.

    Raises:
        ValueError: shapes disagree, or a target lies outside the vocabulary.
    """
    check_head(hidden, weight, targets, bias=bias)
    hidden, weight = (x if x.stride(1) == 1 else x.contiguous() for x in (hidden, weight))
    num_rows, vocabulary = hidden.shape[0], weight.shape[0]
    if launch is None:
        launch = logprob_launch(num_rows=num_rows, vocabulary=vocabulary, dtype=hidden.dtype)
    num_slices = -(-vocabulary // launch.slice_vocab)
    wanted = torch.empty(num_rows, dtype=torch.float32, device=hidden.device)
    partial = torch.empty(4, num_slices, num_rows, dtype=torch.float32, device=hidden.device)
    if num_rows:
        head = (hidden, weight, bias, targets)
        _launch(head, wanted, partial, launch, logit_scale=logit_scale, softcap=softcap)
    return _merged(wanted, partial)


def _launch(
    head, wanted, partial, launch: LogprobLaunch, *, logit_scale: float, softcap: float | None
) -> None:
    hidden, weight, bias, targets = head
    num_rows, vocabulary, num_slices = hidden.shape[0], weight.shape[0], partial.shape[1]
    num_blocks = -(-num_rows // launch.block_rows)
    head = (hidden, weight, weight if bias is None else bias, targets)
    strides = (hidden.stride(0), weight.stride(0))
    cap = 0.0 if softcap is None else softcap
    fixed = {
        "HIDDEN": hidden.shape[1],
        "HAS_BIAS": bias is not None,
        "HAS_CAP": softcap is not None,
        "BLOCK_ROWS": launch.block_rows,
        "BLOCK_VOCAB": launch.block_vocab,
        "BLOCK_HIDDEN": launch.block_hidden,
        "PRECISION": launch.precision,
        "WIDEN": is_interpreted(),
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
        **LAUNCH_OPTIONS,
    }
    _target_logit_kernel[(num_blocks,)](
        *head, wanted, num_rows, *strides, logit_scale, cap, **fixed
    )  # fmt: skip
    _logprob_kernel[(num_blocks * num_slices,)](
        *head, wanted, partial,
        num_rows, vocabulary, *strides, num_blocks, num_slices, logit_scale, cap,
        SLICE_VOCAB=launch.slice_vocab, **fixed,
    )  # fmt: skip


def _merged(wanted_M: torch.Tensor, partial_4SM: torch.Tensor) -> TokenLogprob:
    """Joins the vocabulary slices; a row without a finite log-sum-exp is NaN in every column."""
    top_SM, mass_SM, moment_SM, above_SM = partial_4SM
    top_M = top_SM.amax(0)
    shift_SM = (top_SM - top_M).clamp_(min=-1e30)
    weight_SM = shift_SM.exp()
    mass_M = (mass_SM * weight_SM).sum(0)
    moment_M = ((moment_SM + mass_SM * shift_SM) * weight_SM).sum(0)
    log_mass_M = mass_M.log()
    columns = torch.stack([
        log_mass_M - (wanted_M - top_M),
        log_mass_M + top_M,
        log_mass_M - moment_M / mass_M,
        above_SM.sum(0),
    ])  # fmt: skip
    columns.masked_fill_(~columns[1].isfinite(), torch.nan)
    nll, logsumexp, entropy, rank = columns
    return TokenLogprob(nll=nll, logsumexp=logsumexp, entropy=entropy, rank=rank)


@triton.jit
def _logits(
    hidden_rows, weight_rows, is_row, is_entry, entry_bias, scale, cap,
    HIDDEN: tl.constexpr, HAS_CAP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_VOCAB: tl.constexpr, BLOCK_HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One float32 tile of logits, from pointers to the first element of each row and entry."""
    acc = tl.zeros([BLOCK_ROWS, BLOCK_VOCAB], tl.float32)
    part = tl.arange(0, BLOCK_HIDDEN)
    for at in range(0, HIDDEN, BLOCK_HIDDEN):
        is_part = at + part < HIDDEN
        left = tl.load(
            hidden_rows[:, None] + (at + part)[None, :],
            mask=is_row[:, None] & is_part[None, :],
            other=0.0,
        )
        right = tl.load(
            weight_rows[None, :] + (at + part)[:, None],
            mask=is_entry[None, :] & is_part[:, None],
            other=0.0,
        )
        acc = product(left, right, acc, PRECISION, WIDEN)
    logits = (acc + entry_bias[None, :]) * scale
    if HAS_CAP:
        # tanh through exp of a negative number, which cannot overflow.
        fall = tl.exp(-2.0 * tl.abs(logits) / cap)
        size = cap * (1.0 - fall) / (1.0 + fall)
        logits = tl.where(logits < 0.0, -size, tl.where(logits == logits, size, logits))
    return logits


@triton.jit
def _target_logit_kernel(
    hidden, weight, bias, targets, wanted,
    num_rows, stride_hidden, stride_weight, scale, cap,
    HIDDEN: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_VOCAB: tl.constexpr, BLOCK_HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The logit of each row's target: the same product as in the main kernel, bit for bit.

    Its tile multiplies the block's rows with the block's targets; the diagonal is what is wanted.
    """
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = row < num_rows
    hidden_rows = hidden + row.to(tl.int64) * stride_hidden
    lane = tl.arange(0, BLOCK_VOCAB)
    for at in range(0, BLOCK_ROWS, BLOCK_VOCAB):
        column = tl.program_id(0) * BLOCK_ROWS + at + lane
        is_column = (at + lane < BLOCK_ROWS) & (column < num_rows)
        entry = tl.load(targets + column, mask=is_column, other=0)
        entry_bias = tl.zeros([BLOCK_VOCAB], tl.float32)
        if HAS_BIAS:
            entry_bias = tl.load(bias + entry).to(tl.float32)
        logits = _logits(
            hidden_rows, weight + entry * stride_weight, is_row, is_column, entry_bias, scale, cap,
            HIDDEN, HAS_CAP, BLOCK_ROWS, BLOCK_VOCAB, BLOCK_HIDDEN, PRECISION, WIDEN,
        )  # fmt: skip
        is_own = row[:, None] == column[None, :]
        own = tl.sum(tl.where(is_own, logits, 0.0), 1)
        tl.store(wanted + row, own, mask=is_row & (tl.max(is_own.to(tl.int32), 1) > 0))


@triton.jit
def _logprob_kernel(
    hidden, weight, bias, targets, wanted, partial,
    num_rows, vocabulary, stride_hidden, stride_weight, num_blocks, num_slices, scale, cap,
    HIDDEN: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_VOCAB: tl.constexpr, BLOCK_HIDDEN: tl.constexpr,
    SLICE_VOCAB: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    # Row blocks vary fastest: programs that run together read the same slice of the head.
    part = tl.program_id(0) // num_blocks
    row = (tl.program_id(0) % num_blocks) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = row < num_rows
    hidden_rows = hidden + row.to(tl.int64) * stride_hidden
    target = tl.load(targets + row, mask=is_row, other=0).to(tl.int32)
    own = tl.load(wanted + row, mask=is_row, other=0.0)

    top = tl.full([BLOCK_ROWS], -float("inf"), tl.float32)
    mass = tl.zeros([BLOCK_ROWS], tl.float32)
    moment = tl.zeros([BLOCK_ROWS], tl.float32)
    above = tl.zeros([BLOCK_ROWS], tl.float32)
    begin = part * SLICE_VOCAB
    for at in range(begin, tl.minimum(begin + SLICE_VOCAB, vocabulary), BLOCK_VOCAB):
        entry = at + tl.arange(0, BLOCK_VOCAB)
        is_entry = entry < vocabulary
        entry_bias = tl.zeros([BLOCK_VOCAB], tl.float32)
        if HAS_BIAS:
            entry_bias = tl.load(bias + entry, mask=is_entry, other=0.0).to(tl.float32)
        logits = _logits(
            hidden_rows, weight + entry.to(tl.int64) * stride_weight, is_row, is_entry, entry_bias,
            scale, cap,
            HIDDEN, HAS_CAP, BLOCK_ROWS, BLOCK_VOCAB, BLOCK_HIDDEN, PRECISION, WIDEN,
        )  # fmt: skip
        logits = tl.where(is_entry[None, :], logits, -float("inf"))

        is_before = entry[None, :] < target[:, None]
        beats = (logits > own[:, None]) | ((logits == own[:, None]) & is_before)
        beats = beats & is_entry[None, :] & (entry[None, :] != target[:, None])
        above += tl.sum(beats.to(tl.float32), 1)

        new_top = tl.maximum(top, tl.max(logits, 1))
        anchor = tl.where(new_top == -float("inf"), 0.0, new_top)
        # Floors keep 0 * -inf out of the moment; exp() is 0 long before, NaN stays NaN.
        fall = tl.where(top < anchor - 1e30, -1e30, top - anchor)
        keep = tl.exp(fall)
        below = logits - anchor[:, None]
        below = tl.where(below < -1e30, -1e30, below)
        new_mass = tl.exp(below)
        moment = (moment + mass * fall) * keep + tl.sum(new_mass * below, 1)
        mass = mass * keep + tl.sum(new_mass, 1)
        top = new_top

    at = partial + tl.cast(part, tl.int64) * num_rows + row
    stride = tl.cast(num_slices, tl.int64) * num_rows
    tl.store(at, top, mask=is_row)
    tl.store(at + stride, mass, mask=is_row)
    tl.store(at + 2 * stride, moment, mask=is_row)
    tl.store(at + 3 * stride, above, mask=is_row)
