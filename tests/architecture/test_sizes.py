"""Files and functions stay small; names that hide what they hold, and unfinished work, stay out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_PYTHON_LINES = 350
# C++ has its braces; a test file its tables of cases and expected words.
MAX_LONG_LINES = 400
MAX_FUNCTION_LINES = 40
# A GPU kernel is one loop nest over registers; cutting it up costs a spill, not a function call.
MAX_KERNEL_LINES = 120


def _files(*patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in REPOSITORY.glob(pattern)]
    return sorted(path for path in found if "__pycache__" not in path.parts)


PACKAGES = _files("ralm_engine/**/*.py", "kernels/ralm_kernels/**/*.py")
SCRIPTS = _files("benchmarks/**/*.py", "tools/**/*.py")
TESTS = _files("tests/**/*.py")
PYTHON = [*PACKAGES, *SCRIPTS, *TESTS]
NATIVE = [p for p in _files("csrc/**/*.[ch]pp", "csrc/**/*.h") if not p.name.startswith("unicode_")]


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_the_lists_above_find_files():
    """Fails when a glob no longer matches: the tests below would then pass on nothing."""
    assert len(PACKAGES) > 20
    assert REPOSITORY / "ralm_engine" / "errors.py" in PACKAGES


def test_files_are_short():
    """Fails when a file has grown past the ceiling: it has found a second reason to change."""
    limits = {
        MAX_PYTHON_LINES: [*PACKAGES, *SCRIPTS],
        MAX_LONG_LINES: [*TESTS, *NATIVE],
    }
    long = {
        _name(path): length
        for limit, paths in limits.items()
        for path in paths
        if (length := len(path.read_text().splitlines())) > limit
    }
    assert long == {}


@pytest.mark.parametrize("path", PACKAGES, ids=_name)
def test_functions_are_short(path: Path):
    """Fails when a function has more than 40 lines beside its docstring (a kernel: 120)."""
    tree = ast.parse(path.read_text())
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    long = {node.name: n for node in functions if (n := _code_lines(node)) > _limit(node)}
    assert long == {}


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def _limit(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    return MAX_KERNEL_LINES if "triton.jit" in decorators else MAX_FUNCTION_LINES


def test_no_file_is_a_drawer():
    """Fails on names that say nothing about what is inside."""
    drawers = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert [_name(path) for path in PYTHON if path.name in drawers] == []


def test_kernels_is_no_package():
    """Fails when kernels/ becomes importable: transformers probes for a package of that name."""
    assert not (REPOSITORY / "kernels" / "__init__.py").exists()


def test_nothing_is_left_for_later():
    """Fails on markers of unfinished work in code that ships."""
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
    found = {
        f"{_name(path)}:{number}": line.strip()
        for path in [*PACKAGES, *NATIVE]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marker.search(line)
    }
    assert found == {}


def test_print_lives_in_the_command_line():
    """Fails when a library module prints: its callers may be writing JSON to the same stream."""
    found = [
        _name(path)
        for path in PACKAGES
        if "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    assert found == []


def test_comments_are_ascii():
    """Fails on a non-ASCII comment: it looks different in other people's terminals."""
    found = [
        f"{_name(path)}:{token.start[0]}"
        for path in PACKAGES
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.COMMENT and not token.string.isascii()
    ]
    assert found == []


def test_the_model_layer_never_hears_of_passages():
    """Fails when lm/ speaks of passages: it scores continuations given prefixes, nothing else."""
    found = [
        f"{_name(path)}:{number}"
        for path in PACKAGES
        if path.parent.name == "lm"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "passage" in line.lower()
    ]
    assert found == []
