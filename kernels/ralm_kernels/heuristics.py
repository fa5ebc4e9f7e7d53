"""Launch shapes of the Triton kernels: every tuning constant of the package, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import torch

FLOAT32_PRECISION = "tf32x3"

# Query rows, keys, warps and pipeline stages by the wider of the padded head sizes: 64, 128, 256.
# All come from compiling with Triton 3.6 and 3.9 (benchmarks/kernels/compile_report.py): the
# largest tile without spilled registers. No GPU has timed them yet; gpu_check.py will.
_HOPPER_HALF = {64: (128, 64, 4, 3), 128: (128, 64, 8, 3), 256: (64, 32, 8, 2)}
# Before Hopper both operands of a product sit in registers: 4 warps spill 64 bytes at head size
# 64, and 64 keys at a time 16 (3.6) to 72 bytes at head size 128.
_AMPERE_HALF = {64: (128, 64, 8, 3), 128: (128, 32, 8, 3), 256: (64, 32, 8, 2)}
# Three tf32 products in the place of one: 64 rows spill 280 bytes at head size 128, 32 rows 0 to
# 32 bytes by version.
_FLOAT32 = {64: (64, 32, 8, 2), 128: (32, 32, 8, 2), 256: (32, 32, 8, 2)}

# Half precision (True) or float32 -> rows, vocabulary entries, hidden elements, warps, stages.
_LOGPROB_SHAPES = {
    True: (128, 128, 64, 8, 3),
    False: (64, 64, 32, 4, 2),
}

# Programs a launch aims at, by slicing the vocabulary: about four rounds of 2 programs on each of
# 132 multiprocessors, so that the last round is a small part. More slices cost 16 bytes a row.
LOGPROB_PROGRAMS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLaunch:
    """Shape of one attention program: `block_rows` query rows against `block_keys` keys a step."""

    block_rows: int
    block_keys: int
    block_head: int
    block_value: int
    num_warps: int
    num_stages: int
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobLaunch:
    """Shape of one log-prob program: `block_rows` rows walk `slice_vocab` entries in tiles."""

    block_rows: int
    block_vocab: int
    block_hidden: int
    slice_vocab: int
    num_warps: int
    num_stages: int
    precision: str


def attention_launch(
    *,
    head_size: int,
    value_size: int,
    dtype: torch.dtype,
    max_rows: int,
    capability: int = 90,
) -> AttentionLaunch:
    """Picks the launch of segment attention.

    Args:
        head_size: D, up to 256.
        value_size: Dv, up to 256.
        dtype: of q, k and v.
        max_rows: most query rows (tokens times grouped heads) that lie side by side and see the
            same keys; a batch of short pieces wants a smaller tile.
        capability: compute capability of the device, 10 * major + minor.

    Raises:
        ValueError: a head size above 256.
    """
    block_head, block_value = (padded_head(size) for size in (head_size, value_size))
    width = max(block_head, block_value)
    if width > 256:
        msg = f"segment attention: head size {max(head_size, value_size)} is above 256"
        raise ValueError(msg)
    shapes = _FLOAT32
    if dtype in (torch.float16, torch.bfloat16):
        shapes = _HOPPER_HALF if capability >= 90 else _AMPERE_HALF
    rows, keys, warps, stages = shapes[max(width, 64)]
    # A tile of 128 rows that holds 64 or fewer wastes half of its products. Half the warps go with
    # half the rows, but for Blackwell, where 4 warps spill 24 bytes at head size 64.
    if max_rows <= 64 and rows > 64:
        rows, warps = 64, 8 if capability >= 100 else 4
    return AttentionLaunch(
        block_rows=rows,
        block_keys=keys,
        block_head=block_head,
        block_value=block_value,
        num_warps=warps,
        num_stages=stages,
        precision=FLOAT32_PRECISION,
    )


def padded_head(size: int) -> int:
    """Head size as the kernel tiles it: a power of two, at least 16, the least a product takes."""
    return max(16, 1 << (size - 1).bit_length())


def logprob_launch(*, num_rows: int, vocabulary: int, dtype: torch.dtype) -> LogprobLaunch:
    """Picks the launch of token log-prob.

    Args:
        num_rows: M.
        vocabulary: V.
        dtype: of hidden and weight.
    """
    is_half = dtype in (torch.float16, torch.bfloat16)
    rows, vocab, hidden, warps, stages = _LOGPROB_SHAPES[is_half]
    num_blocks = max(1, -(-num_rows // rows))
    num_tiles = -(-vocabulary // vocab)
    num_slices = max(1, min(num_tiles, -(-LOGPROB_PROGRAMS // num_blocks)))
    return LogprobLaunch(
        block_rows=rows,
        block_vocab=vocab,
        block_hidden=hidden,
        slice_vocab=vocab * -(-num_tiles // num_slices),
        num_warps=warps,
        num_stages=stages,
        precision=FLOAT32_PRECISION,
    )
