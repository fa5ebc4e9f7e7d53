"""What a language-model head says about target tokens, without keeping the logits.

Shape legend: `M` wanted positions, `D` hidden size, `V` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

# 64 MiB of float32 logits at a time: 340 rows of a 49k or 110 of a 152k vocabulary. Below 200 rows
# widening a bfloat16 head to float32 for each chunk shows (872 ms at 32 MiB, 727 ms at 64 MiB).
CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenLogprob:
    """Per wanted position, float32 [M] each.

    A row whose logits hold NaN or +inf, or are all -inf, is NaN in every column. Single -inf
    logits are legal: that token has probability 0.

    Attributes:
        nll: -log p(target), natural log; +inf where the target's logit is -inf.
        logsumexp: log of the sum of exp(logit).
        entropy: of the predicted distribution, in nat.
        rank: vocabulary entries before the target by (logit descending, token id ascending);
            0 where the target is the arg max.
    """

    nll: torch.Tensor
    logsumexp: torch.Tensor
    entropy: torch.Tensor
    rank: torch.Tensor


@torch.no_grad()
def token_logprob(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenLogprob:
    """Scores targets under logits = softcap * tanh((hidden @ weight.T + bias) * scale / softcap).

    Logits are float32 whatever the inputs are: half-precision operands are products of half
    precision summed in float32. At most `chunk_bytes` of logits (and as much scratch) exist at a
    time, never fewer than one row.

    Args:
        hidden: [M, D].
        weight: [V, D], the head's weight, in the dtype of `hidden`.
        targets: int64 [M], in 0..V-1.
        bias: [V] or None.
        logit_scale: factor of the logits, before the cap.
        softcap: soft cap of the logits, None for none.
        chunk_bytes: bound of the float32 logits held at a time.

    Raises:
        ValueError: shapes disagree, or a target lies outside the vocabulary.
    """
    check_head(hidden, weight, targets, bias=bias)
    num_rows, vocabulary = hidden.shape[0], weight.shape[0]
    columns = torch.empty(4, num_rows, dtype=torch.float32, device=hidden.device)
    step = max(1, chunk_bytes // (4 * vocabulary))
    for first in range(0, num_rows, step):
        rows = slice(first, first + step)
        logits = _float32_logits(hidden[rows], weight)
        if bias is not None:
            logits += bias
        if logit_scale != 1.0:
            logits *= logit_scale
        if softcap is not None:
            logits.div_(softcap).tanh_().mul_(softcap)
        columns[:, rows] = _statistics(logits, targets[rows])
    nll, logsumexp, entropy, rank = columns
    return TokenLogprob(nll=nll, logsumexp=logsumexp, entropy=entropy, rank=rank)


def check_head(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, bias: torch.Tensor | None
) -> None:
    """Checks the inputs of a `token_logprob` against each other.

    Raises:
        ValueError: shapes or dtypes disagree, or a target lies outside the vocabulary.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        msg = (
            "token log-prob: hidden must be [M, D] and weight [V, D], got "
            f"{tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
        raise ValueError(msg)
    if targets.shape != hidden.shape[:1] or targets.dtype != torch.int64:
        msg = (
            f"token log-prob: targets must be int64 [{hidden.shape[0]}], got "
            f"{targets.dtype} {tuple(targets.shape)}"
        )
        raise ValueError(msg)
    if hidden.dtype != weight.dtype:
        msg = f"token log-prob: hidden is {hidden.dtype} but weight is {weight.dtype}"
        raise ValueError(msg)
    if bias is not None and bias.shape != weight.shape[:1]:
        msg = f"token log-prob: bias must be [{weight.shape[0]}], got {tuple(bias.shape)}"
        raise ValueError(msg)
    # sync: reads two numbers back where the targets live on a GPU.
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < weight.shape[0]:
        msg = (
            f"token log-prob: targets span {int(targets.min())}..{int(targets.max())}, but the "
            f"vocabulary has {weight.shape[0]} entries"
        )
        raise ValueError(msg)


def _float32_logits(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if hidden.dtype == torch.float32 or hidden.device.type != "cuda":
        return hidden.float() @ weight.float().T
    return torch.mm(hidden, weight.T, out_dtype=torch.float32)


def _statistics(logits_MV: torch.Tensor, targets_M: torch.Tensor) -> torch.Tensor:
    """The four columns, float32 [4, M]; overwrites the logits, takes a scratch of their size."""
    wanted_M1 = logits_MV.gather(1, targets_M.unsqueeze(1))
    scratch_MV = torch.empty_like(logits_MV)
    rank_M = _ranks(logits_MV, wanted_M1, targets_M, scratch_MV=scratch_MV)
    top_M1 = logits_MV.amax(1, keepdim=True)
    # A floor keeps 0 * -inf out of the entropy; exp() is 0 long before it, NaN stays NaN.
    below_MV = logits_MV.sub_(top_M1).clamp_(min=-1e30)
    mass_MV = torch.exp(below_MV, out=scratch_MV)
    total_M = mass_MV.sum(1)
    log_total_M = total_M.log()
    logsumexp_M = log_total_M + top_M1.squeeze(1)
    entropy_M = log_total_M - torch.linalg.vecdot(mass_MV, below_MV) / total_M
    nll_M = log_total_M - (wanted_M1 - top_M1).squeeze(1)
    columns = torch.stack([nll_M, logsumexp_M, entropy_M, rank_M])
    return columns.masked_fill_(~logsumexp_M.isfinite(), torch.nan)


# Comparisons write 0.0 and 1.0: summing bool tensors took 14 times as long on an AVX2 core
# (64 ms against 4.6 ms for 170 rows of 49,152).
def _ranks(
    logits_MV: torch.Tensor,
    wanted_M1: torch.Tensor,
    targets_M: torch.Tensor,
    *,
    scratch_MV: torch.Tensor,
) -> torch.Tensor:
    rank_M = torch.gt(logits_MV, wanted_M1, out=scratch_MV).sum(1)
    equal_M = torch.eq(logits_MV, wanted_M1, out=scratch_MV).sum(1)
    # sync: which rows have ties; in practice none, so the exact order is settled row by row.
    for row in (equal_M > 1).nonzero().flatten().tolist():
        rank_M[row] += scratch_MV[row, : targets_M[row]].sum()
    return rank_M
