"""Compiles the kernels ahead of time and reports registers, shared memory and spills.

Needs triton and no GPU: `python benchmarks/kernels/compile_report.py [--json PATH] [--only TEXT]`.
Prints one line per kernel, head size, dtype and architecture. Must not run in Triton's
interpreter: a process that set TRITON_INTERPRET cannot compile.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ralm_kernels import triton_attention, triton_logprob
from ralm_kernels.heuristics import attention_launch, logprob_launch
from ralm_kernels.triton_math import LAUNCH_OPTIONS

ARCHITECTURES = (80, 90, 100)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

# The assembler's log is all that is read: it must run, and say what it did.
triton.knobs.compilation.always_compile = True
triton.knobs.nvidia.dump_ptxas_log = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel to compile: its name, the argument types and the launch."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    pointers: dict[str, str]
    floats: tuple[str, ...]
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the assembler made of one case. Bytes per program, registers and spills per thread."""

    name: str
    architecture: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    seconds: float


def attention_case(head_size: int, dtype: str, *, architecture: int, max_rows: int = 4096) -> Case:
    launch = attention_launch(
        head_size=head_size,
        value_size=head_size,
        dtype=DTYPES[dtype],
        max_rows=max_rows,
        capability=architecture,
    )
    return Case(
        name=f"segment_attention {dtype} head {head_size}" + " short" * (max_rows <= 64),
        kernel=triton_attention._segment_attention_kernel,
        constants={
            "HEADS": 3,
            "GROUP": 3,
            "HEAD_SIZE": head_size,
            "VALUE_SIZE": head_size,
            "BLOCK_ROWS": launch.block_rows,
            "BLOCK_KEYS": launch.block_keys,
            "BLOCK_HEAD": launch.block_head,
            "BLOCK_VALUE": launch.block_value,
            "PRECISION": launch.precision,
            "WIDEN": False,
        },
        pointers=dict.fromkeys(("q", "k", "v", "out"), dtype)
        | {"lse": "fp32"}
        | dict.fromkeys(("tiles", "full_spans", "masked_spans", "segment_begin"), "i32"),
        floats=("scale_log2",),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def logprob_case(dtype: str, *, target: bool = False) -> Case:
    """The main kernel, or with bias and cap the one that computes the targets' logits."""
    launch = logprob_launch(num_rows=16384, vocabulary=128256, dtype=DTYPES[dtype])
    pointers = {"hidden": dtype, "weight": dtype, "bias": dtype, "targets": "i64"}
    constants = {
        "HIDDEN": 4096,
        "HAS_BIAS": target,
        "HAS_CAP": target,
        "BLOCK_ROWS": launch.block_rows,
        "BLOCK_VOCAB": launch.block_vocab,
        "BLOCK_HIDDEN": launch.block_hidden,
        "PRECISION": launch.precision,
        "WIDEN": False,
    }
    return Case(
        name=f"{'target_logit' if target else 'token_logprob'} {dtype} hidden 4096",
        kernel=(triton_logprob._target_logit_kernel if target else triton_logprob._logprob_kernel),
        constants=constants if target else constants | {"SLICE_VOCAB": launch.slice_vocab},
        pointers=pointers | {"wanted": "fp32"} | ({} if target else {"partial": "fp32"}),
        floats=("scale", "cap"),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def compile_case(case: Case, *, architecture: int) -> Row:
    """Compiles with every pointer and stride a multiple of 16, as torch's allocator makes them."""
    signature, constants, aligned = {}, {}, {}
    for position, name in enumerate(case.kernel.arg_names):
        if name in case.constants:
            signature[name] = "constexpr"
            constants[(position,)] = case.constants[name]
        elif name in case.pointers:
            signature[name] = "*" + case.pointers[name]
            aligned[(position,)] = [["tt.divisibility", 16]]
        elif name in case.floats:
            signature[name] = "fp32"
        else:
            signature[name] = "i32"
            if name.startswith("stride_") and name != "stride_lt":
                aligned[(position,)] = [["tt.divisibility", 16]]
    begun = time.perf_counter()
    with redirect_stdout(StringIO()) as log:
        compiled = triton.compile(
            ASTSource(case.kernel, signature, constants, aligned),
            target=GPUTarget("cuda", architecture, 32),
            options={
                "num_warps": case.num_warps,
                "num_stages": case.num_stages,
                **LAUNCH_OPTIONS,
            },
        )
    registers, spills = _resources(log.getvalue())
    return Row(
        name=case.name,
        architecture=architecture,
        registers=registers,
        spill_bytes=spills,
        shared_bytes=compiled.metadata.shared,
        num_warps=case.num_warps,
        num_stages=case.num_stages,
        seconds=round(time.perf_counter() - begun, 1),
    )


def _resources(log: str) -> tuple[int, int]:
    """Registers and spilled bytes of one thread, from the log of the assembler triton ran.

    A stack frame without spills is possible (8 bytes at 80 registers were seen on sm_100), so the
    frame that a disassembler shows is no measure of spilling.
    """
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    used = re.search(r"Used (\d+) registers", log)
    if spilled is None or used is None:
        raise SystemExit(f"ptxas printed no resource usage: {log!r}")
    return int(used[1]), max(int(spilled[1]), int(spilled[2]))


def cases(architecture: int) -> list[Case]:
    """Every combination that is reported."""
    heads = [("bf16", 64), ("bf16", 128), ("bf16", 256), ("fp16", 80), ("fp32", 64), ("fp32", 128)]
    return [
        *(attention_case(size, dtype, architecture=architecture) for dtype, size in heads),
        *(
            attention_case(size, "bf16", architecture=architecture, max_rows=64)
            for size in (64, 128)
        ),
        logprob_case("bf16"),
        logprob_case("bf16", target=True),
        logprob_case("fp32"),
    ]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the rows")
    parser.add_argument("--only", default="", help="compile cases whose name contains this")
    arguments = parser.parse_args(argv)
    print("| kernel | sm | warps | stages | registers | spill bytes | shared KiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for architecture in ARCHITECTURES:
        for case in cases(architecture):
            if arguments.only in case.name:
                row = compile_case(case, architecture=architecture)
                rows.append(row)
                print(
                    f"| {row.name} | {architecture} | {row.num_warps} | {row.num_stages} "
                    f"| {row.registers} | {row.spill_bytes} | {row.shared_bytes / 1024:.0f} |",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
