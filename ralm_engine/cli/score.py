"""`ralm-engine score`: runs or resumes a job."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ralm_engine.cli.options import Commands, add_command, add_job, add_json, load
from ralm_engine.errors import RunError

if TYPE_CHECKING:
    from ralm_engine.jobs.outcome import RunOutcome

_DESCRIPTION = """\
Scores the text of a job file and writes the run directory: candidate table, summary, report.

A run that was stopped, killed or ran out of disk goes on where it was with the same command; a
changed job is refused, naming what changed.
"""
_EXAMPLES = """\
  ralm-engine score job.toml
  ralm-engine score job.toml --set retrieval.k=4 --set run.out=run-k4
  ralm-engine score job.toml --set input.limit_tokens=2000 --executor inline
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "score",
        run,
        summary="run a job, or go on with it",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_job(parser)
    add_json(parser, "the summary")
    parser.set_defaults(
        after_interrupt="committed shards are safe; run the same command again to go on"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the job and prints what it found."""
    cfg = load(args)  # before the heavy imports: a slip in the job file shows at once
    from ralm_engine.cli.progress import progress_display, stage_display
    from ralm_engine.jobs.score import run_job

    with progress_display() as progress:
        outcome = run_job(cfg, progress=progress, stages=stage_display(time.monotonic))
    show_outcome(outcome, as_json=args.json)
    return 0


def show_outcome(outcome: RunOutcome, *, as_json: bool) -> None:
    """Prints the summary of a run.

    Raises:
        RunError: shards failed; what the others gave is printed first.
    """
    from ralm_engine.cli.output import print_json, print_perplexity

    if outcome.summary is not None and as_json:
        print_json(outcome.summary)
    elif outcome.summary is not None:
        print_perplexity(outcome.summary)
        print(f"run directory: {outcome.path}")
    if outcome.failed:
        sys.stdout.flush()
        for part, reason in sorted(outcome.failed.items()):
            print(f"shard {part}: {reason}", file=sys.stderr)
        raise RunError(
            f"{len(outcome.failed)} of {outcome.num_shards} shards failed in {outcome.path}",
            hint="the lines above say why; run the same command again to retry them",
        )
