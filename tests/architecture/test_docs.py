"""The documents tell the truth: commands exist, the job file loads, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ralm_engine.cli.program import build_parser
from ralm_engine.config import load_job

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")


def text(name: str) -> str:
    return (REPOSITORY / name).read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text("README.md"), re.MULTILINE | re.DOTALL)


def program_lines() -> list[str]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("ralm-engine ")]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("line", program_lines())
def test_commands_of_the_readme_parse(line):
    """Fails when the README shows a command or an option that the program does not have."""
    assert callable(build_parser().parse_args(shlex.split(line)[1:]).run)


def test_the_readme_shows_every_command():
    """Fails when the quickstart's commands were moved where this test does not see them."""
    shown = {line.split()[1] for line in program_lines()}
    assert shown == {"doctor", "plan", "score", "analyze", "report", "verify", "index"}


def test_make_targets_of_the_readme_exist():
    """Fails when the README names a target that the Makefile lacks."""
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", text("README.md")))
    assert {"demo", "test"} <= named
    assert named <= make_targets()


def test_every_target_explains_itself():
    """Fails when `make help` would leave a target out."""
    explained = set(re.findall(r"^([a-z-]+):.*## \w", text("Makefile"), re.MULTILINE))
    assert explained == make_targets()
    assert {"setup", "demo", "test", "test-slow", "test-gpu", "check", "fix"} <= explained


def test_job_file_of_the_readme_loads(tmp_path):
    """Fails when the README's job file has a key or a value that the engine refuses."""
    (example,) = blocks("toml")
    path = tmp_path / "job.toml"
    path.write_text(example)
    assert load_job(path).retrieval.k == 16


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    """Fails when a document links to a file that is not there."""
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", text(name))
    files = re.findall(r"`(docker/[\w.]+|benchmarks/[\w./-]+\.\w+)`", text(name))
    assert [target for target in targets + files if not (REPOSITORY / target).exists()] == []


def test_architecture_names_every_package():
    """Fails when a package has no line, or a line no package."""
    named = set(re.findall(r"^\| `([\w.]+)` \|", text("ARCHITECTURE.md"), re.MULTILINE))
    engine = REPOSITORY / "ralm_engine"
    modules = {path.parent.name for path in engine.glob("*/__init__.py")}
    modules |= {path.stem for path in engine.glob("*.py") if path.stem != "__init__"}
    expected = {f"ralm_engine.{name}" for name in modules} | {"ralm_kernels", "csrc"}
    assert named == expected


def test_architecture_names_only_modules_that_exist():
    """Fails when the data path points at a file that was renamed."""
    named = re.findall(
        r"`((?:lm|text|ralm|retrieval|store|report|ralm_kernels)/\w+)`", text("ARCHITECTURE.md")
    )
    assert len(named) > 10
    roots = (REPOSITORY / "ralm_engine", REPOSITORY / "kernels")
    missing = [name for name in named if not any((root / f"{name}.py").exists() for root in roots)]
    assert missing == []


def test_changelog_keeps_its_form():
    """Fails when the unreleased section, or its Numbers, is missing."""
    changelog = text("CHANGELOG.md")
    newest = changelog.partition("\n## ")[2].partition("\n## ")[0]
    assert newest.startswith("[Unreleased]")
    assert "\n### Numbers\n" in newest


def test_nothing_names_a_machine_or_a_registry_host():
    """Fails when a path or a host that only one workplace has is written down."""
    places = re.compile("/" + r"work/(main|shared)|\bpypi" + r"\.org|file:///opt")
    names = ["Makefile", "pyproject.toml", "constraints.txt", ".ci/run", *DOCUMENTS]
    names += [str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("docker/*")]
    names += [str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("ralm_engine/**/*.py")]
    assert [name for name in names if places.search(text(name))] == []
