"""Timing, memory and plans that the parts of the GPU check share."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ralm_kernels import SegmentPlan

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every part is told.

    Attributes:
        device: where to run.
        tiny: sizes for a CPU and Triton's interpreter: checks the script, measures nothing.
        rng: generator of all sizes and inputs.
        peak_tflops: bf16 matrix rate to compare with, measured on this device.
    """

    device: torch.device
    tiny: bool
    rng: np.random.Generator
    peak_tflops: float

    @property
    def repeats(self) -> int:
        """Timed calls of one measurement."""
        return 1 if self.tiny else 12

    def randn(self, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
        """Normal numbers on the device."""
        generator = torch.Generator(self.device).manual_seed(int(self.rng.integers(2**62)))
        values = torch.randn(*shape, generator=generator, device=self.device)
        return values.mul_(scale).to(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds of the repeats, and the most memory above what was held before."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    peak_mib: float

    def columns(self) -> dict[str, float]:
        """For a result row."""
        return {
            "ms": round(self.median_ms, 4),
            "p20_ms": round(self.p20_ms, 4),
            "p80_ms": round(self.p80_ms, 4),
            "peak_mib": round(self.peak_mib, 1),
        }


def measure(settings: Settings, call: Callable[[], object]) -> Timing:
    """Times `call` after two warm-ups; on a GPU with events and with the L2 cache swept between."""
    on_gpu = settings.device.type == "cuda"
    for _ in range(1 if settings.tiny else 2):
        call()
    times = []
    sweep = torch.empty(2**26, dtype=torch.int32, device=settings.device) if on_gpu else None
    held = _reset_peak(settings)
    for _ in range(settings.repeats):
        if sweep is None:
            begun = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begun))
        else:
            sweep.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    p20, p80 = np.quantile(times, [0.2, 0.8])
    peak = (torch.cuda.max_memory_allocated() - held) / 2**20 if on_gpu else 0.0
    return Timing(
        median_ms=statistics.median(times), p20_ms=float(p20), p80_ms=float(p80), peak_mib=peak
    )


def matrix_rate(device: torch.device, *, size: int) -> float:
    """TFLOP/s of a bf16 product of random square matrices: the roof of everything else."""
    rng = np.random.default_rng(0)
    settings = Settings(device=device, tiny=device.type != "cuda", rng=rng, peak_tflops=0.0)
    left, right = (settings.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / measure(settings, lambda: left @ right).median_ms / 1e9


def random_plan(rng: np.random.Generator, *, segments: int, longest: int) -> SegmentPlan:
    """Ragged segments, some empty; some see what the one before sees, others random ranges."""
    lengths = [int(rng.integers(0, longest + 1)) for _ in range(segments)]
    visible: list[list[tuple[int, int]]] = []
    at = 0
    for length in lengths:
        if visible and rng.random() < 0.5:
            visible.append(visible[-1])
        else:
            cuts = np.sort(rng.integers(0, at + 1, size=2 * int(rng.integers(0, 3)))).tolist()
            visible.append(list(zip(cuts[::2], cuts[1::2], strict=True)))
        at += length
    return SegmentPlan.from_lists(lengths, visible)


def prefix_plan(*, groups: int, prefix: int, branches: int, branch: int) -> SegmentPlan:
    """Groups of one prefix and `branches` segments that see it: candidates of one context."""
    lengths: list[int] = []
    visible: list[list[tuple[int, int]]] = []
    at = 0
    for _ in range(groups):
        lengths += [prefix] + [branch] * branches
        visible += [[]] + [[(at, at + prefix)]] * branches
        at += prefix + branches * branch
    return SegmentPlan.from_lists(lengths, visible)


def tail_plan(*, context: int, passages: int, passage: int, tail: int) -> SegmentPlan:
    """One context, passages encoded apart, one tail per passage that sees both (`parallel`)."""
    lengths = [context] + [passage] * passages + [tail] * passages
    begins = [context + passage * n for n in range(passages)]
    tails = [[(0, context), (begin, begin + passage)] for begin in begins]
    return SegmentPlan.from_lists(lengths, [[]] * (1 + passages) + tails)


def _reset_peak(settings: Settings) -> int:
    gc.collect()
    if settings.device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()
