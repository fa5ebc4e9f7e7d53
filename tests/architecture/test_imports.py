"""Who may import what, tried out: heavy packages are blocked and the modules must still load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

TORCH_FREE = (
    "ralm_engine.config",
    "ralm_engine.errors",
    "ralm_engine.jobs.doctor",
    "ralm_engine.ralm.analysis",
    "ralm_engine.report",
    "ralm_engine.retrieval.factory",
    "ralm_engine.retrieval.native",
    "ralm_engine.schema",
    "ralm_engine.store.rundir",
    "ralm_engine.store.verify",
    "ralm_engine.text.passages",
    "ralm_engine.text.streams",
    "ralm_engine.text.tokenizer",
)


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", TORCH_FREE)
def test_loads_without_torch(module: str):
    """Fails when the module, or anything it imports, needs torch or transformers at import."""
    blocked = "import sys; sys.modules.update(torch=None, transformers=None, ray=None)"
    _python(f"{blocked}; import {module}")


def test_the_block_blocks():
    """Fails when setting sys.modules entries to None no longer stops an import."""
    blocked = "import sys; sys.modules.update(torch=None)"
    with pytest.raises(AssertionError, match="torch"):
        _python(f"{blocked}; import torch")


def test_the_command_line_loads_nothing_heavy():
    """Fails when `ralm-engine --help` would load a package that takes longer than the help."""
    heavy = ("torch", "transformers", "ray", "rich", "pyarrow", "numpy", "tokenizers")
    code = f"import sys, ralm_engine.cli; print([m for m in {heavy!r} if m in sys.modules])"
    assert _python(code).strip() == "[]"
