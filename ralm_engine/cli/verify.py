"""`ralm-engine verify`: whether a run directory is whole."""

from __future__ import annotations

import argparse

from ralm_engine.cli.options import Commands, add_command, add_json
from ralm_engine.errors import RunError

_DESCRIPTION = """\
Checks a run directory: every file against its checksum, every schema and version, every stride
against its candidates, and that every token of every stream was scored exactly once.
"""
_EXAMPLES = """\
  ralm-engine verify run/ && echo whole
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "verify",
        run,
        summary="check that a run is whole",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("directory", metavar="RUN", help="run directory")
    add_json(parser, "the problems found")


def run(args: argparse.Namespace) -> int:
    """Prints each problem; exit code 4 where there is one."""
    from ralm_engine.cli.output import print_json
    from ralm_engine.store.verify import verify_run

    problems = [str(problem) for problem in verify_run(args.directory)]
    if args.json:
        print_json({"run": args.directory, "problems": problems})
    else:
        print("\n".join(problems) or f"{args.directory}: whole")
    return RunError.exit_code if problems else 0
