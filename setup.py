"""Builds ralm_engine._native; everything else about the package is in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import setup

ROOT = Path(__file__).parent
SOURCES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "csrc").rglob("*.cpp")
    if "tests" not in path.parts
)
HEADERS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.hpp"))
NEWEST_HEADER = max((ROOT / name).stat().st_mtime for name in HEADERS)


def is_stale(built: str, source: str) -> bool:
    """Whether an object is older than its source or any header: classes have one layout."""
    if not Path(built).exists():
        return True
    return Path(built).stat().st_mtime < max(Path(source).stat().st_mtime, NEWEST_HEADER)


ParallelCompile("RALM_BUILD_JOBS", default=0, needs_recompile=is_stale).install()

setup(
    ext_modules=[
        Pybind11Extension(
            "ralm_engine._native",
            SOURCES,
            include_dirs=["csrc"],
            depends=HEADERS,
            cxx_std=20,
            # Scores must be Lucene's floats: no fused multiply-add behind our back. One wheel runs
            # everywhere: wider instructions are chosen at run time.
            extra_compile_args=["-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
        )
    ],
)
