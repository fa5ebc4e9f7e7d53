"""Run from outside the tree: does an installed wheel hold everything that it needs at run time?"""

from importlib.resources import files
from pathlib import Path

import ralm_engine
import ralm_kernels
from ralm_engine import _native
from ralm_engine.cli.program import build_parser

REPOSITORY = Path(__file__).resolve().parent.parent

for module in (ralm_engine, ralm_kernels, _native):
    place = Path(str(module.__file__))
    assert (REPOSITORY / "dist") in place.parents, f"{place} is not the installed wheel's"
assert files("ralm_engine").joinpath("py.typed").is_file(), "no type marker"
assert files("ralm_engine.report").joinpath("assets", "report.js").is_file(), "no report assets"
assert "score" in build_parser().format_help(), "no commands"
