"""The GPU check runs whole on a CPU, and says so when a kernel is wrong."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.fixture
def script(repository: Path) -> Path:
    return repository / "benchmarks" / "gpu_check.py"


@pytest.mark.slow
def test_the_tiny_check_passes_and_leaves_json(script: Path, tmp_path: Path):
    """Fails when a part breaks, a check is out of bounds, or the script needs more than it says."""
    blocked = "import sys, runpy; " + "".join(
        f"sys.modules[{name!r}] = None; " for name in ("ray", "faiss", "pyserini", "pyarrow")
    )
    run = f"sys.argv = sys.argv[1:]; runpy.run_path({str(script)!r}, run_name='__main__')"
    arguments = ["gpu_check", "--tiny", "--seed", "7", "--out", str(tmp_path / "check.json")]
    done = subprocess.run(
        [sys.executable, "-c", blocked + run, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "check.json").read_text())
    assert list(report["parts"]) == ["correctness", "attention", "logprob", "end_to_end"]
    assert all(part["rows"] for part in report["parts"].values())
    assert max(row["ratio"] for row in report["parts"]["correctness"]["rows"]) <= 1.0
    assert done.stdout.splitlines()[-1].startswith("ok in ")


@pytest.mark.parametrize(
    ("ratio", "wrong"), [(0.5, False), (1.0, False), (1.01, True), (math.nan, True)]
)
def test_a_nan_is_a_failed_check(script: Path, ratio: float, wrong: bool):
    """Fails when an output left poisoned (NaN) passes because NaN > 1 is false."""
    spec = importlib.util.spec_from_file_location("gpu_check", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module._is_wrong([{"case": "a"}, {"ratio": ratio}]) is wrong
