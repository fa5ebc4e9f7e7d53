"""The progress display: readable in a log, bounded in length, silent on stdout."""

from __future__ import annotations

import types

import pytest

from ralm_engine.cli.progress import (
    describe,
    duration,
    plain_display,
    progress_display,
    stage_display,
)


def event(done: int, *, total: int = 4, eta: float | None = 65.0):
    return types.SimpleNamespace(
        done_shards=done,
        num_shards=total,
        done_strides=done * 256,
        num_strides=total * 256,
        strides_per_second=12.34,
        tokens_per_second=45678.9,
        share_saved=0.75,
        eta_seconds=eta,
    )


def test_a_line_says_how_far_how_fast_how_long():
    """Fails when a figure of the event is missing from the line."""
    assert describe(event(1)) == (
        "1/4 shards, 256/1024 strides, 12.3 strides/s, 45,679 tokens/s, 75% saved by sharing, "
        "1 min 05 s left"
    )


@pytest.mark.parametrize("unknown", [event(4), event(1, eta=None)])
def test_no_time_left_where_there_is_none(unknown):
    """Fails when a finished run, or one that cannot tell yet, promises a time."""
    assert "left" not in describe(unknown)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3 * 3600 + 60, "3 h 01 min"),
        (86_400 * 4 + 3 * 3600, "4 d 03 h"),
    ],
)
def test_durations_in_two_units(seconds, shown):
    """Fails when rounding gives `60 s`, or a day is told in seconds."""
    assert duration(seconds) == shown


def test_a_log_gets_a_line_every_30_seconds_and_the_last(capsys):
    """Fails when a log is flooded, starts with a silence, or lacks the end."""
    now = [0.0]
    show = plain_display(lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        show(event(1))
    show(event(4))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("1/4 shards") == 4
    assert printed.err.count("4/4 shards") == 1


def test_without_a_terminal_the_display_is_plain(capsys):
    """Fails when escape sequences go into a log."""
    with progress_display() as show:
        show(event(4))
    assert capsys.readouterr().err == describe(event(4)) + "\n"


def test_in_a_terminal_the_display_is_live(monkeypatch, capsys):
    """Fails when the live display breaks on an event, or writes to stdout."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_display() as show:
        show(event(1))
        show(event(4))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "1024/1024" in printed.err


def test_long_steps_are_announced_and_then_told_every_30_seconds(capsys):
    """Fails when building an index looks like a hang, or floods a log."""
    now = [0.0]
    show = stage_display(lambda: now[0])
    for second in range(45):
        now[0] = float(second)
        show("indexing", second * 100, 4500)
    show("reading", 7, 0)
    assert capsys.readouterr().err == (
        "indexing: 0 of 4,500 (0%)\nindexing: 3,000 of 4,500 (67%)\nreading: 7\n"
    )
