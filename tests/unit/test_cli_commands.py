"""What each command asks of the layers below and prints of their answers."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from ralm_engine.cli.index import read_queries
from ralm_engine.cli.plan import format_figure
from ralm_engine.cli.program import main
from ralm_engine.errors import InputError
from ralm_engine.retrieval.protocol import Candidates

JOB = '[input]\npath = "a.txt"\n[model]\nname = "smollm2"\n[passages]\npath = "p.jsonl"\n'
SUMMARY = {
    "perplexity": {
        "none": {"token": 33.04, "word": 50.0, "space": 51.0, "byte": 2.031},
        "first": {"token": 35.0, "word": 55.0, "space": 56.0, "byte": 2.1},
        "oracle": {"token": 27.6, "word": None, "space": 41.0, "byte": 1.9},
    },
    "oracle_at": [35.0, 30.5, 27.6],
    "counts": {"tokens": 1439, "words": 1000, "spaces": 990, "bytes": 6000},
}


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return str(path)


@pytest.fixture
def replace_module(monkeypatch):
    def install(name: str, **functions) -> None:
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**functions))

    return install


@pytest.fixture
def scored(replace_module):
    """Puts a finished run in the place of run_job; returns the configurations it was given."""
    asked = []

    def install(summary=SUMMARY, failed=None):
        def run_job(cfg, **_):
            asked.append(cfg)
            return types.SimpleNamespace(
                path="/runs/1", failed=failed or {}, num_shards=8, summary=summary
            )

        replace_module("ralm_engine.jobs.score", run_job=run_job)
        return asked

    return install


def test_score_prints_the_perplexity_table(scored, job, capsys):
    """Fails when a figure, its denominator or the run directory is missing from the table."""
    scored()
    assert main(["score", job]) == 0
    shown = capsys.readouterr().out
    assert "no retrieval" in shown
    for figure in ("33.04", "35.00", "27.60", "2.031", "1,439", "6,000", "30.50"):
        assert figure in shown
    assert "run directory: /runs/1" in shown


def test_score_json_is_the_summary(scored, job, capsys):
    """Fails when anything but the summary goes to stdout with --json."""
    scored()
    assert main(["score", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == SUMMARY


def test_score_overrides_reach_the_job(scored, job):
    """Fails when --set or --executor is parsed and dropped, or --set wins over --executor."""
    asked = scored()
    argv = ["score", job, "--set", "retrieval.k=4", "--set", "run.executor=ray"]
    assert main([*argv, "--executor", "inline"]) == 0
    assert asked[0].retrieval.k == 4
    assert asked[0].run.executor == "inline"


def test_failed_shards_end_in_code_4_after_the_figures(scored, job, capsys):
    """Fails when a run with lost shards looks like a success, or hides what the others gave."""
    scored(failed={3: "OSError: gone"})
    assert main(["score", job]) == 4
    printed = capsys.readouterr()
    assert "33.04" in printed.out
    assert printed.err.startswith("shard 3: OSError: gone\nerror: 1 of 8 shards failed in /runs/1")


def test_a_run_without_a_scored_token_prints_dashes(scored, job, capsys):
    """Fails when null perplexities (an empty stream) break the table."""
    nulls = dict.fromkeys(("token", "word", "space", "byte"))
    scored(summary={**SUMMARY, "perplexity": {"none": nulls}, "oracle_at": [None]})
    assert main(["score", job]) == 0
    assert "no retrieval" in capsys.readouterr().out


def test_plan_json_is_the_plan(replace_module, job, capsys):
    """Fails when plan --json prints other keys than the plan has."""
    plan = {"rows": 10, "tokens_asked": 500, "seconds": 1.5}
    answer = types.SimpleNamespace(as_dict=lambda: plan)
    replace_module("ralm_engine.jobs.plan", plan_job=lambda _, **__: answer)
    assert main(["plan", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plan
    assert main(["plan", job]) == 0
    assert "tokens asked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("rows", 1234567, "1,234,567"),
        ("seconds", 3700.0, "1 h 01 min"),
        ("memory_bytes", 3 * 2**29, "1.50 GiB"),
        ("flop", 1.5e15, "1.5 PFLOP"),
        ("flop", 12.0, "12 FLOP"),
        ("flop_per_second", 9.12e10, "91.2 GFLOP/s"),
        ("share_saved", 0.754, "75%"),
        ("gpu_hours", 0.51234, "0.512"),
        ("device", "cpu", "cpu"),
        ("gpu_hours", None, "-"),
    ],
)
def test_plan_figures_carry_their_units(key, value, shown):
    """Fails when a figure is printed without its unit, or not readable."""
    assert format_figure(key, value) == shown


def test_verify_prints_problems_with_code_4(replace_module, capsys):
    """Fails when a broken run passes for a whole one."""
    replace_module("ralm_engine.store.verify", verify_run=lambda _: ["part 3: cut off"])
    assert main(["verify", "run"]) == 4
    assert capsys.readouterr().out == "part 3: cut off\n"
    assert main(["verify", "run", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["problems"] == ["part 3: cut off"]


def test_verify_of_a_whole_run(replace_module, capsys):
    """Fails when a whole run is reported as broken."""
    replace_module("ralm_engine.store.verify", verify_run=lambda _: [])
    assert main(["verify", "run"]) == 0
    assert capsys.readouterr().out == "run: whole\n"


def test_analyze_writes_and_prints(replace_module, capsys):
    """Fails when analyze does not write the summary, or drops its options."""
    written = {}
    replace_module(
        "ralm_engine.ralm.analysis",
        analyze_run=lambda _, **options: {**SUMMARY, "options": options},
        write_summary=lambda run, summary: written.update({run: summary}),
    )
    assert main(["analyze", "run", "--seed", "3", "--resamples", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"] == {"seed": 3, "resamples": 10}
    assert list(written) == ["run"]


def test_report_prints_the_page(replace_module, capsys):
    """Fails when the page's path, which a script needs next, is not what is printed."""
    replace_module("ralm_engine.report", render_report=lambda run, out: out or Path(run, "r.html"))
    assert main(["report", "run"]) == 0
    assert main(["report", "run", "--out", "x.html"]) == 0
    assert capsys.readouterr().out == "run/r.html\nx.html\n"


class FakeIndex:
    """Answers each query with as many hits as it has words."""

    def search(self, queries, k):
        counts = np.array([min(k, len(query.split())) for query in queries], dtype=np.int32)
        rows = np.where(np.arange(k) < counts[:, None], np.arange(k) + 7, -1)
        return Candidates(
            passage_QK=rows.astype(np.int64),
            score_QK=np.where(rows >= 0, 1.5, 0).astype(np.float32),
            count_Q=counts,
            status_Q=np.zeros(len(queries), dtype=np.int8),
        )


def test_index_search_prints_one_json_line_a_query(replace_module, tmp_path, capsys):
    """Fails when padding is printed as a hit, a query has no line, or the order changes."""
    replace_module("ralm_engine.jobs.index", open_index=lambda *_, **__: FakeIndex())
    queries = tmp_path / "q.jsonl"
    queries.write_text('{"query": "two words"}\n{"query": ""}\n\n{"id": 1, "query": "one"}\n')
    argv = ["index", "search", "index", "--queries", str(queries), "--k", "4", "--json"]
    assert main(argv) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {"passages": [7, 8], "scores": [1.5, 1.5]},
        {"passages": [], "scores": []},
        {"passages": [7], "scores": [1.5]},
    ]


def test_index_search_for_people(replace_module, capsys):
    """Fails when a person's single query prints JSON, or nothing where nothing was found."""
    replace_module("ralm_engine.jobs.index", open_index=lambda *_, **__: FakeIndex())
    assert main(["index", "search", "index", "--query", "one", "--k", "3"]) == 0
    assert main(["index", "search", "index", "--query", "", "--k", "3"]) == 0
    assert capsys.readouterr().out == "one\n     1.5000  7\n\n  no hits\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"query": "a"}\n{"query": 3}\n', r'q\.jsonl:2: no string "query"'),
        (b'{"query": "a"}\n\nquery\n', r"q\.jsonl:3: not JSON"),
        (b'["a"]\n', r'q\.jsonl:1: no string "query"'),
        (b'{"query": "\xff"}\n', r"q\.jsonl: cannot be read"),
    ],
)
def test_bad_query_files_name_file_and_line(tmp_path, content, words):
    """Fails when a bad line is skipped, or its place is not named."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_queries(path)


def test_missing_query_file(tmp_path):
    """Fails when a missing file ends in a traceback."""
    with pytest.raises(InputError, match="cannot be read"):
        read_queries(tmp_path / "none.jsonl")
