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


def stage_display(clock: Callable[[], float]) -> Callable[[str, int, int], None]:
    """Says on stderr which long step is under way: when it begins, and every few seconds of it.

    The function it returns takes (what, done, all); all is 0 where it is unknown.
    """
    interval = 2.0 if sys.stderr.isatty() else PLAIN_INTERVAL_SECONDS
    shown: dict[str, float] = {}

    def show(what: str, done: int, num_all: int) -> None:
        now = clock()
        if now - shown.get(what, -interval) >= interval:
            shown[what] = now
            of_all = f" of {num_all:,} ({done / num_all:.0%})" if num_all else ""
            print(f"{what}: {done:,}{of_all}", file=sys.stderr, flush=True)

    return show


def describe(event: ProgressEvent) -> str:
    """One line: shards, strides, rates, what sharing saves, time left."""
    parts = [
        f"{event.done_shards}/{event.num_shards} shards",
        f"{event.done_strides}/{event.num_strides} strides",
        f"{event.strides_per_second:.1f} strides/s",
        f"{event.tokens_per_second:,.0f} tokens/s",
        f"{event.share_saved:.0%} saved by sharing",
        *_time_left(event),
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


def _time_left(event: ProgressEvent) -> list[str]:
    if event.eta_seconds is None or event.done_shards >= event.num_shards:
        return []
    return [f"{duration(event.eta_seconds)} left"]


def _short(event: ProgressEvent) -> str:
    """The figures of `describe` in the room that a terminal has."""
    parts = [
        f"{event.done_strides}/{event.num_strides} strides",
        f"{event.strides_per_second:.1f}/s",
        f"{event.tokens_per_second:,.0f} tokens/s",
        f"{event.share_saved:.0%} saved",
        *_time_left(event),
    ]
    return "  ".join(parts)


@contextmanager
def _live_display() -> Iterator[Sink]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    # The words never give way: in a narrow terminal it is the bar that shrinks.
    words = TextColumn("{task.description}", table_column=Column(no_wrap=True))
    bar = Progress(BarColumn(bar_width=None), words, console=Console(stderr=True), expand=True)
    with bar:
        task = bar.add_task("starting", total=None)

        def show(event: ProgressEvent) -> None:
            bar.update(
                task,
                total=event.num_strides,
                completed=event.done_strides,
                description=_short(event),
            )

        yield show
