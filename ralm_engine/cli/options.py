"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralm_engine.config import JobConfig

Commands = Any
"""What `add_subparsers` returns; argparse names no public type for it."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as written, at a width that does not depend on the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=96)


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """Adds one command with the options that every command has.

    Args:
        commands: what `add_subparsers` returned.
        name: the word on the command line.
        run: called with the parsed arguments; returns the exit code.
        summary: one line for the list of commands.
        description: what it does, for its own help.
        examples: command lines with comments, one a line.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=Formatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=run, after_interrupt="nothing was changed")
    return parser


def add_json(parser: argparse.ArgumentParser, content: str) -> None:
    """Adds --json, saying what it prints."""
    parser.add_argument("--json", action="store_true", help=f"print {content} as JSON")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Adds the job file and everything that overrides it."""
    parser.add_argument("job", metavar="JOB.toml", help="the job file")
    add_overrides(parser)
    parser.add_argument(
        "--executor",
        choices=("ray", "inline"),
        help="inline runs everything in this process, for debugging (= --set run.executor=...)",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Adds --set."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        action="append",
        default=[],
        help="override a key of the job file, repeatable; paths resolve as in the file",
    )


def load(args: argparse.Namespace) -> JobConfig:
    """Reads the job that the arguments name."""
    from ralm_engine.config import load_job

    executor = [f"run.executor={args.executor}"] if args.executor else []
    return load_job(args.job, overrides=[*args.overrides, *executor])
