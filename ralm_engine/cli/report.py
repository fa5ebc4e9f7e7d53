"""`ralm-engine report`: a run as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ralm_engine.cli.options import Commands, add_command, add_json

_DESCRIPTION = """\
Writes one self-contained HTML page from a run directory: perplexity table, oracle curve, throughput
and cost, provenance, and an explorer of strides. Reads Parquet only; needs neither model nor GPU.
"""
_EXAMPLES = """\
  ralm-engine report run/
  ralm-engine report run/ --out somewhere/else.html
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "report",
        run,
        summary="a run as one HTML page",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("directory", metavar="RUN", help="run directory")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="page to write (default RUN/report.html)"
    )
    add_json(parser, "the page's path")


def run(args: argparse.Namespace) -> int:
    """Writes the page and prints its path."""
    from ralm_engine.cli.output import print_json
    from ralm_engine.report import render_report

    page = render_report(args.directory, out=args.out)
    if args.json:
        print_json({"report": str(page)})
    else:
        print(page)
    return 0
