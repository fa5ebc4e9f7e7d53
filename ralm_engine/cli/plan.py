"""`ralm-engine plan`: what a job would cost, before anything runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from ralm_engine.cli.options import Commands, add_command, add_job, add_json, load

_DESCRIPTION = """\
Prints the rows, tokens, floating-point operations, memory and time that a job would take on this
machine. Reads text, tokenizer and model configuration; loads no weights, scores nothing.
"""
_EXAMPLES = """\
  ralm-engine plan job.toml
  ralm-engine plan job.toml --set window.context_slack=60   what slack would save
  ralm-engine plan job.toml --json
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "plan",
        run,
        summary="what a job would cost, before it runs",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_job(parser)
    add_json(parser, "the plan")


def run(args: argparse.Namespace) -> int:
    """Plans the job and prints the plan."""
    cfg = load(args)  # before the heavy imports: a slip in the job file shows at once
    from ralm_engine.cli.output import print_json
    from ralm_engine.cli.progress import stage_display
    from ralm_engine.jobs.plan import plan_job

    plan = plan_job(cfg, stages=stage_display(time.monotonic)).as_dict()
    if args.json:
        print_json(plan)
    else:
        _print_plan(plan)
    return 0


def _print_plan(plan: Mapping[str, object]) -> None:
    figures = {
        _label(key): format_figure(key, value)
        for key, value in plan.items()
        if not isinstance(value, (Mapping, list))
    }
    width = max(map(len, figures))
    room = max(map(len, figures.values()))
    for label, figure in figures.items():
        print(f"{label:{width}}  {figure:>{room}}")


def _label(key: str) -> str:
    """The figure's name without the unit that `format_figure` prints."""
    return {"seconds": "time"}.get(key, key.removesuffix("_bytes")).replace("_", " ")


def format_figure(key: str, value: object) -> str:
    """A plan's figure with the unit that its name carries."""
    from ralm_engine.cli.progress import duration

    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    if key == "seconds":
        return duration(value)
    if key.endswith("bytes"):
        return f"{value / 2**30:.2f} GiB"
    if key.startswith("flop"):
        return _scaled(value, "FLOP/s" if key.endswith("per_second") else "FLOP")
    if key.startswith("share"):
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def _scaled(value: float, unit: str) -> str:
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9)):
        if value >= size:
            return f"{value / size:,.3g} {prefix}{unit}"
    return f"{value:,.3g} {unit}"
