"""`ralm-engine analyze`: perplexities and oracle statistics from a run's tables."""

from __future__ import annotations

import argparse

from ralm_engine.cli.options import Commands, add_command, add_json

_DESCRIPTION = """\
Folds the candidate table of a run into perplexities with intervals, the oracle curve and the
lookback sweep, and writes summary.parquet and summary.json. Needs neither model nor GPU, and works
on a run that is still going.
"""
_EXAMPLES = """\
  ralm-engine analyze run/
  ralm-engine analyze run/ --resamples 10000 --json
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "analyze",
        run,
        summary="perplexities and oracle statistics of a run",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("directory", metavar="RUN", help="run directory")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default 0)")
    parser.add_argument(
        "--resamples", type=int, default=1000, help="bootstrap resamples (default 1000)"
    )
    add_json(parser, "the summary")


def run(args: argparse.Namespace) -> int:
    """Analyses the run and prints its perplexity table."""
    from ralm_engine.cli.output import print_json, print_perplexity
    from ralm_engine.ralm.analysis import analyze_run, write_summary

    summary = analyze_run(args.directory, seed=args.seed, resamples=args.resamples)
    write_summary(args.directory, summary)
    if args.json:
        print_json(summary)
    else:
        print_perplexity(summary)
    return 0
