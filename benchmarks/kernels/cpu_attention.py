"""What attention costs on a CPU beside the matrix products of a 135M LLaMA layer.

`python benchmarks/kernels/cpu_attention.py [--threads N]`. Prints one line per workload: packed
tokens, milliseconds and GFLOP/s of both, and attention's share. With one thread the clock counts
that thread's processor time, so that the figures hold on a busy machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))

from ralm_kernels import SegmentPlan, cpu

HIDDEN, INTERMEDIATE, HEADS, KEY_HEADS, HEAD_SIZE = 576, 1536, 9, 3, 64
PROJECTIONS = (
    (HIDDEN, HIDDEN),
    (KEY_HEADS * HEAD_SIZE, HIDDEN),
    (KEY_HEADS * HEAD_SIZE, HIDDEN),
    (HIDDEN, HIDDEN),
    (INTERMEDIATE, HIDDEN),
    (INTERMEDIATE, HIDDEN),
    (HIDDEN, INTERMEDIATE),
)
# Segments, and their shortest and longest: a shard's rows, rows of a full window, short branches.
WORKLOADS = {"rows": (65, 150, 900), "full windows": (17, 900, 920), "branches": (400, 20, 60)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for name, (segments, shortest, longest) in WORKLOADS.items():
        plan = rows_that_see_a_passage(segments, shortest, longest)
        begun = clock()
        prepared = cpu.prepare(plan)
        prepare_ms = 1e3 * (clock() - begun)
        q, k, v = (
            torch.randn(plan.num_tokens, n, HEAD_SIZE) for n in (HEADS, KEY_HEADS, KEY_HEADS)
        )
        attention = best_ms(
            clock,
            lambda: cpu.segment_attention(q, k, v, prepared, scale=HEAD_SIZE**-0.5),  # noqa: B023
        )
        inputs = {size: torch.randn(plan.num_tokens, size) for size in (HIDDEN, INTERMEDIATE)}
        weights = [torch.randn(shape) for shape in PROJECTIONS]
        products = best_ms(clock, lambda: [inputs[w.shape[1]] @ w.T for w in weights])  # noqa: B023
        rates = [
            4 * HEADS * HEAD_SIZE * plan.num_pairs / attention / 1e6,
            2 * plan.num_tokens * sum(a * b for a, b in PROJECTIONS) / products / 1e6,
        ]
        print(
            f"{name}: {plan.num_tokens} tokens, prepare {prepare_ms:.1f} ms, attention "
            f"{attention:.0f} ms at {rates[0]:.0f} GFLOP/s, products {products:.0f} ms at "
            f"{rates[1]:.0f} GFLOP/s, share {attention / (attention + products):.2f}"
        )


def rows_that_see_a_passage(segments: int, shortest: int, longest: int) -> SegmentPlan:
    """Each segment sees a passage of 90 to 130 tokens of its own."""
    rng = np.random.default_rng(0)
    lengths: list[int] = []
    visible: list[list[tuple[int, int]]] = []
    at = 0
    for _ in range(segments):
        passage = int(rng.integers(90, 131))
        length = int(rng.integers(shortest, longest + 1))
        lengths += [passage, length]
        visible += [[], [(at, at + passage)]]
        at += passage + length
    return SegmentPlan.from_lists(lengths, visible)


def best_ms(clock: Callable[[], float], call: Callable[[], object]) -> float:
    """Least of four, after a warm-up."""
    call()
    times = []
    for _ in range(4):
        begun = clock()
        call()
        times.append(clock() - begun)
    return 1e3 * min(times)


if __name__ == "__main__":
    main()
