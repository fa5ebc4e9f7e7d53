"""Builds ralm_engine._native; everything else about the package is in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, naive_recompile
from setuptools import setup

ROOT = Path(__file__).parent
SOURCES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "csrc").rglob("*.cpp")
    if "tests" not in path.parts
)

ParallelCompile("RALM_BUILD_JOBS", default=0, needs_recompile=naive_recompile).install()

setup(
    ext_modules=[
        Pybind11Extension(
            "ralm_engine._native",
            SOURCES,
            include_dirs=["csrc"],
            cxx_std=20,
            # Scores must be Lucene's floats: no fused multiply-add behind our back. One wheel runs
            # everywhere: wider instructions are chosen at run time.
            extra_compile_args=["-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
        )
    ],
)
