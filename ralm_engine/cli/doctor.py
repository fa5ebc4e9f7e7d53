"""`ralm-engine doctor`: what is installed, what is missing, and what for."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ralm_engine.cli.options import Commands, add_command, add_json
from ralm_engine.errors import MissingDependencyError

_DESCRIPTION = """\
Looks at Python, hardware and packages, and says what is missing and what it would be for. Exit code
3 where something is broken that the engine cannot work without.
"""
_EXAMPLES = """\
  ralm-engine doctor
  ralm-engine doctor --json
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "doctor",
        run,
        summary="what is installed, what is missing, what for",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_json(parser, "the findings")


def run(args: argparse.Namespace) -> int:
    """Prints a line for each finding, and a second one where something can be done."""
    from ralm_engine.cli.output import print_json
    from ralm_engine.jobs.doctor import examine

    findings = examine()
    fatal = [finding.name for finding in findings if finding.is_fatal]
    if args.json:
        print_json({"ok": not fatal, "findings": [asdict(finding) for finding in findings]})
        return MissingDependencyError.exit_code if fatal else 0
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.status:7} {finding.name:{width}}  {finding.detail}")
        if finding.advice:
            print(f"{'':7} {'':{width}}  for {finding.purpose}: {finding.advice}")
    print()
    print(f"broken: {', '.join(fatal)}" if fatal else "Everything that is needed is there.")
    return MissingDependencyError.exit_code if fatal else 0
