"""How the program ends: one line on stderr, the right exit code, no traceback unless asked."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from ralm_engine.cli.program import main
from ralm_engine.errors import InputError, MissingDependencyError, RunError

JOB = '[input]\npath = "a.txt"\n[model]\nname = "smollm2"\n[passages]\npath = "p.jsonl"\n'


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return str(path)


@pytest.fixture
def planner(monkeypatch):
    """Puts a function in the place of plan_job."""

    def install(plan_job) -> None:
        module = types.SimpleNamespace(plan_job=plan_job)
        monkeypatch.setitem(sys.modules, "ralm_engine.jobs.plan", module)

    return install


def raiser(error: BaseException):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("a.txt: empty", hint="name a text"), 2, "error: a.txt: empty; name a text"),
        (MissingDependencyError("no Java"), 3, "error: no Java"),
        (RunError("disk full"), 4, "error: disk full"),
        (
            ModuleNotFoundError("No module named 'faiss'", name="faiss"),
            3,
            "error: the package faiss is not installed; run `ralm-engine doctor`",
        ),
        (
            ValueError("two\nlines"),
            4,
            "error: unexpected ValueError: two lines; run with --debug for the traceback",
        ),
    ],
)
def test_errors_are_one_line_with_their_code(planner, job, capsys, error, code, line):
    """Fails when an error loses its exit code, its line, or brings a traceback along."""
    planner(raiser(error))
    assert main(["plan", job]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", line + "\n")


def test_debug_shows_the_traceback(planner, job, capsys):
    """Fails when a bug cannot be looked into from the command line."""
    planner(raiser(ValueError("deep inside")))
    assert main(["plan", job, "--debug"]) == 4
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert printed.splitlines()[-1].startswith("error: unexpected ValueError: deep inside")


@pytest.mark.parametrize(
    ("command", "advice"),
    [("plan", "nothing was changed"), ("score", "run the same command again to go on")],
)
def test_ctrl_c_says_how_to_go_on(monkeypatch, job, capsys, command, advice):
    """Fails when an interrupted run ends in a traceback, or without the next step."""
    fail = types.SimpleNamespace(
        plan_job=raiser(KeyboardInterrupt()),
        run_job=raiser(KeyboardInterrupt()),
    )
    monkeypatch.setitem(sys.modules, f"ralm_engine.jobs.{command}", fail)
    assert main([command, job]) == 130
    printed = capsys.readouterr().err
    assert printed.startswith("\ninterrupted; ")
    assert printed.endswith(f"{advice}\n")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "required: COMMAND"),
        (["scor"], "invalid choice: 'scor'"),
        (["score"], "required: JOB.toml"),
        (["score", "job.toml", "--retries", "3"], "unrecognized arguments: --retries 3"),
        (["index", "search", "index"], "one of the arguments --query --queries is required"),
        (["analyze", "run", "--resamples", "many"], "invalid int value: 'many'"),
    ],
)
def test_usage_errors_are_one_line(capsys, argv, words):
    """Fails when a wrong command line prints a page, or not the place to look it up."""
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert words in printed
    assert printed.endswith("--help\n")
    assert printed.count("\n") == 1


def test_wrong_job_file_is_one_line_with_code_2(tmp_path, capsys):
    """Fails when the most common mistake, a slip in the job file, is not explained."""
    path = tmp_path / "job.toml"
    path.write_text(JOB + "[window]\nmax_lenght = 256\n")
    assert main(["score", str(path)]) == 2
    expected = 'error: job.toml: [window] unknown key "max_lenght"; did you mean "max_length"?\n'
    assert capsys.readouterr().err == expected


def test_a_reader_that_leaves_is_no_error(tmp_path):
    """Fails when `ralm-engine ... | head -1` ends with a complaint about the pipe."""
    code = (
        "import sys, types, ralm_engine.cli.program as program\n"
        "sys.modules['ralm_engine.jobs.plan'] = types.SimpleNamespace(plan_job=lambda cfg, **_:\n"
        "    types.SimpleNamespace(as_dict=lambda: {'x': 'y' * 10_000_000}))\n"
        f"sys.exit(program.main(['plan', '--json', {str(tmp_path / 'job.toml')!r}]))\n"
    )
    (tmp_path / "job.toml").write_text(JOB)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert (complaint, process.returncode) == ("", 141)
