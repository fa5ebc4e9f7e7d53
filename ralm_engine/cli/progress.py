"""Shows how a run is doing: a live line in a terminal, a line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralm_engine.jobs.progress import ProgressEvent

# Often enough to see that a job lives, rare enough that a log of days stays readable (2,880 a day).
PLAIN_INTERVAL_SECONDS = 30.0

Sink = Callable[["ProgressEvent"], None]


@contextmanager
def progress_display() -> Iterator[Sink]:
    """Yields the function that a job calls with its progress; writes to stderr."""
    if sys.stderr.isatty():
        with _live_display() as sink:
            yield sink
    else:
        yield plain_display(time.monotonic)


def plain_display(clock: Callable[[], float]) -> Sink:
    """Prints the first and the last event, and one every PLAIN_INTERVAL_SECONDS between."""
    last_printed = -PLAIN_INTERVAL_SECONDS

    def show(event: ProgressEvent) -> None:
        nonlocal last_printed
        done = event.done_shards >= event.num_shards
        if done or clock() - last_printed >= PLAIN_INTERVAL_SECONDS:
            last_printed = clock()
            print(describe(event), file=sys.stderr, flush=True)

    return show


def describe(event: ProgressEvent) -> str:
    """One line: shards, strides, rates, what sharing saves, time left."""
    parts = [
        f"{event.done_shards}/{event.num_shards} shards",
        f"{event.done_strides}/{event.num_strides} strides",
        *_rates(event),
    ]
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`45 s`, `3 min 05 s`, `2 h 10 min`, `4 d 03 h`."""
    whole = round(seconds)
    for size, unit, small_size, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size:02d} {small_unit}"
    return f"{whole} s"


def _rates(event: ProgressEvent) -> list[str]:
    rates = [
        f"{event.strides_per_second:.1f} strides/s",
        f"{event.tokens_per_second:,.0f} tokens/s",
        f"{event.share_saved:.0%} saved by sharing",
    ]
    if event.eta_seconds is not None and event.done_shards < event.num_shards:
        rates.append(f"{duration(event.eta_seconds)} left")
    return rates


@contextmanager
def _live_display() -> Iterator[Sink]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("scoring"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("strides, {task.fields[rates]}"),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("scoring", total=None, rates="starting")

        def show(event: ProgressEvent) -> None:
            bar.update(
                task,
                total=event.num_strides,
                completed=event.done_strides,
                rates=", ".join(_rates(event)),
            )

        yield show
