"""What every test may ask for: the repository, shared data, a seeded generator."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

# Read when triton is first imported, which transformers does for some models: too late in a test.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data that lies beside the checkout (or where RALM_SHARED says); skips without it."""
    folder = Path(os.environ.get("RALM_SHARED") or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no shared data in {folder}; set RALM_SHARED")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed: a failure repeats."""
    return np.random.default_rng(20_260_301)
