"""`ralm-engine demo`: real text, a real model, in minutes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ralm_engine.cli.options import Commands, add_command, add_json

_DESCRIPTION = """\
Scores articles that were held out from an encyclopaedia, with its other articles as passages and
SmolLM2-135M as the model: perplexity without retrieval, with the first passage, with zero-shot
reranking and with the oracle, and a report. Text and model come from PyPI wheels (see `doctor`).
"""
_EXAMPLES = """\
  ralm-engine demo
  ralm-engine demo --out /tmp/demo && ralm-engine score /tmp/demo/job.toml
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "demo",
        run,
        summary="real text, a real model, in minutes",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("demo"),
        help="where text, job file, index and run go (default demo/)",
    )
    parser.add_argument(
        "--executor",
        choices=("ray", "inline"),
        default="inline",
        help="inline needs no Ray to start, so it is quicker here (default)",
    )
    add_json(parser, "the summary")
    parser.set_defaults(
        after_interrupt="committed shards are safe; run the same command again to go on"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the job, runs it, prints the table."""
    from ralm_engine.cli.progress import progress_display, stage_display
    from ralm_engine.cli.score import show_outcome
    from ralm_engine.config import load_job
    from ralm_engine.jobs.demo import write_demo_job
    from ralm_engine.jobs.score import run_job

    job = write_demo_job(args.out)
    cfg = load_job(job, overrides=[f"run.executor={args.executor}"])
    with progress_display() as progress:
        outcome = run_job(cfg, progress=progress, stages=stage_display(time.monotonic))
    show_outcome(outcome, as_json=args.json)
    if not args.json:
        print(f"job file:      {job}")
        print(f"report:        {Path(cfg.run.out) / 'report.html'}")
    return 0
