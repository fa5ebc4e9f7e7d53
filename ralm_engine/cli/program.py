"""Parses the command line, runs one command, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ralm_engine import __version__
from ralm_engine.cli import analyze, demo, doctor, index, plan, report, score, verify
from ralm_engine.cli.options import Formatter
from ralm_engine.errors import RalmError

_DESCRIPTION = """\
Scores large text corpora with retrieval-augmented frozen language models, offline, in batch.

A job file names text, passages and a model. One pass gives perplexity without retrieval, with the
first passage, with zero-shot reranking and with the top-k oracle, as Parquet and as a report.
"""
_EPILOG = """\
examples:
  ralm-engine demo                      real text, a real model, in minutes
  ralm-engine plan job.toml             what a job would cost, before it runs
  ralm-engine score job.toml            run it; the same command resumes it
  ralm-engine report run/               one HTML page from a run directory

exit codes: 0 done, 2 usage or input, 3 environment, 4 failed run, 130 interrupted
"""
_COMMANDS = (demo, doctor, index, plan, score, analyze, report, verify)
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class _Parser(argparse.ArgumentParser):
    """Argument errors in one line, like all others."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, as `--help` shows it."""
    parser = _Parser(
        prog="ralm-engine", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=Formatter
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program.

    Args:
        argv: arguments without the program's name; those of the process by default.

    Returns:
        The exit code: 0 done, 2 usage or input, 3 environment, 4 failed run, 130 interrupted.
    """
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"\ninterrupted; {args.after_interrupt}", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader left (`| head`); the interpreter must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:  # the one place where a traceback becomes a line
        if args.debug:
            traceback.print_exc()
        return _report_error(error)
    return code


def _report_error(error: Exception) -> int:
    if isinstance(error, RalmError):
        line, code = str(error), error.exit_code
    elif isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("ralm_"):
        line, code = f"the package {error.name} is not installed; run `ralm-engine doctor`", 3
    else:
        line = f"unexpected {type(error).__name__}: {error}; run with --debug for the traceback"
        code = RalmError.exit_code
    print(f"error: {' '.join(line.split())}", file=sys.stderr)
    return code
