"""Proves the GPU kernels right and measures them, in under ten minutes on one H200.

`python benchmarks/gpu_check.py [--out PATH] [--seed N] [--parts NAMES] [--budget SECONDS]`, or
`--tiny` to run the script itself on a CPU in Triton's interpreter. Needs torch, triton,
transformers and numpy, and this checkout: nothing has to be installed or built. Writes JSON after
every part and prints a short table last. Exit code 1 where a check failed or a part broke.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("correctness", "attention", "logprob", "end_to_end")
COLUMNS = {
    "correctness": ("check", "tokens", "error", "ratio"),
    "attention": (
        "case", "heads", "ms", "tflops", "flash_ms", "sdpa_ms", "copies_ms", "flex_ms",
        "speed_over_copies",
    ),
    "logprob": ("case", "way", "ms", "tflops", "peak_mib"),
    "end_to_end": ("model", "layout", "backend", "ms", "rows_per_s", "tflops", "mfu"),
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small shapes, on a CPU")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    parser.add_argument("--seed", type=int, default=None, help="default: fresh, and recorded")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--budget", type=float, default=540.0, help="seconds; later parts are cut")
    arguments = parser.parse_args(argv)
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "benchmarks" / "kernels")]
    if arguments.tiny:
        os.environ["TRITON_INTERPRET"] = "1"
    begun = time.monotonic()
    report = _environment(arguments)
    settings = _settings(report, tiny=arguments.tiny)
    failed = False
    for part in arguments.parts.split(","):
        left = arguments.budget - (time.monotonic() - begun)
        result = _run_part(part, settings) if left > 0 else {"skipped": "no time left"}
        report["parts"][part] = result
        failed = failed or "error" in result or _is_wrong(result.get("rows", []))
        report["seconds"] = round(time.monotonic() - begun, 1)
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    _print_report(report)
    print("FAILED" if failed else "ok", f"in {report['seconds']} s; {arguments.out}")
    return int(failed)


def _environment(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch
    import transformers
    import triton

    on_gpu = torch.cuda.is_available() and not arguments.tiny
    seed = time.time_ns() % 2**32 if arguments.seed is None else arguments.seed
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "on_gpu": on_gpu,
        "seed": seed,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "parts": {},
    }


def _settings(report: dict[str, Any], *, tiny: bool) -> Any:
    import numpy as np
    import torch
    from gpu_measure import Settings, matrix_rate

    device = torch.device("cuda" if report["on_gpu"] else "cpu")
    if not tiny and device.type == "cpu":
        raise SystemExit("gpu_check: torch sees no CUDA device; use --tiny to try the script")
    peak = matrix_rate(device, size=64 if tiny else 8192)
    report["bf16_matrix_tflops"] = round(peak, 3)
    rng = np.random.default_rng(report["seed"])
    return Settings(device=device, tiny=tiny, rng=rng, peak_tflops=peak)


def _run_part(part: str, settings: Any) -> dict[str, Any]:
    """A part that breaks is reported and does not cost the others their time on the device."""
    begun = time.monotonic()
    try:
        rows = importlib.import_module(f"gpu_{part}").run(settings)
    except Exception:
        return {"error": traceback.format_exc(), "seconds": round(time.monotonic() - begun, 1)}
    return {"rows": rows, "seconds": round(time.monotonic() - begun, 1)}


def _is_wrong(rows: list[dict[str, Any]]) -> bool:
    """A check fails above its bound; NaN compares false, so it is asked the other way round."""
    return any("ratio" in row and not row["ratio"] <= 1.0 for row in rows)


def _print_report(report: dict[str, Any]) -> None:
    print({key: value for key, value in report.items() if key != "parts"})
    for part, result in report["parts"].items():
        print(f"\n{part}: {result.get('seconds', 0)} s {result.get('error', '')}")
        rows = result.get("rows", [])
        if part == "correctness" and not _is_wrong(rows):
            worst = max(rows, key=lambda row: row["ratio"], default={"ratio": 0.0, "check": "-"})
            closest = f"{worst['ratio']:.2f}: {worst['check']}"
            print(f"{len(rows)} checks within bounds; closest {closest}")
            continue
        print(" | ".join(COLUMNS[part]))
        for row in rows:
            print(" | ".join(_shown(row.get(column)) for column in COLUMNS[part]))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 100 else str(value)


if __name__ == "__main__":
    sys.exit(main())
