"""What both kernels share: matrix products and the options every launch is given."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Multiply-adds are fused, as the register counts in benchmarks/kernels were measured; named since
# the default changes with Triton 3.10.
LAUNCH_OPTIONS = {"enable_fp_fusion": True}


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1 before the first import)."""
    return not isinstance(product, triton.runtime.JITFunction)


def device_capability(device: torch.device | str) -> int:
    """10 * major + minor of a CUDA device; 90 for the interpreter's CPU tensors."""
    if torch.device(device).type != "cuda":
        return 90
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@triton.jit
def product(left, right, acc, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    """Adds left @ right to acc, in float32.

    WIDEN makes half-precision operands float32 first: the same numbers, needed where the
    interpreter keeps bfloat16 as bare bits.
    """
    if WIDEN:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, acc, input_precision=PRECISION)
