"""How the report writes figures, its ticks and its labels."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.report import numbers, svg


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (numbers.fixed(25.342), "25.34"),
        (numbers.fixed(-0.5), "\u22120.50"),
        (numbers.fixed(-0.004), "0.00"),
        (numbers.fixed(-10.0, 0), "\u221210"),
        (numbers.fixed(None), "n/a"),
        (numbers.fixed(math.nan), "n/a"),
        (numbers.fixed(math.inf), "n/a"),
        (numbers.signed(0.004), "0.00"),
        (numbers.signed(-0.004), "0.00"),
        (numbers.signed(1234.5), "+1,234.50"),
        (numbers.signed(-1.0), "\u22121.00"),
        (numbers.count(1234567), "1,234,567"),
        (numbers.percent(0.553, 1), "55.3%"),
        (numbers.interval(-1.0, 2.0, sign=True), "\u22121.00 to +2.00"),
        (numbers.interval(None, 2.0), ""),
        (numbers.scaled(4.2e13, "FLOP"), "42 TFLOP"),
        (numbers.scaled(0.0, "FLOP"), "0 FLOP"),
        (numbers.size(3 << 29), "1.5 GiB"),
        (numbers.size(12), "12 B"),
        (numbers.duration(12.34), "12.3 s"),
        (numbers.duration(250), "4 min 10 s"),
        (numbers.duration(7500), "2 h 05 min"),
        (numbers.duration(3 * 86400 + 4 * 3600), "3 d 4 h"),
    ],
)
def test_figures_read_as_people_write_them(text, expected):
    assert text == expected


@given(
    low=st.floats(-1e6, 1e6, allow_nan=False),
    span=st.floats(1e-6, 1e6),
    about=st.integers(2, 10),
)
def test_ticks_enclose_the_data_with_few_even_steps(low, span, about):
    """Fails when a value would fall off the picture, or the axis gets crowded."""
    found = svg.ticks(low, low + span, about=about)
    step = found[1] - found[0]
    # Ticks are multiples of the step: next to large values they are exact to their spacing.
    slack = 1e-6 * step + 2 * math.ulp(abs(low) + span)
    assert found[0] <= low + slack
    assert found[-1] >= low + span - slack
    assert 2 <= len(found) <= about + 3


def test_ticks_of_a_single_value_still_span_something():
    found = svg.ticks(5.0, 5.0)
    assert found[0] < 5.0 < found[-1]


def test_tick_labels_have_the_decimals_of_their_step():
    assert svg.tick_labels([0.0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]
    assert svg.tick_labels([-10.0, 0.0, 10.0]) == ["\u221210", "0", "10"]


@given(st.lists(st.floats(0, 300), max_size=8))
def test_labels_never_overlap_and_keep_their_order(positions):
    placed = svg.spread(positions, gap=16)
    order = sorted(range(len(positions)), key=lambda at: positions[at])
    for before, after in itertools.pairwise(order):
        assert placed[after] - placed[before] >= 16 - 1e-9


def test_svg_escapes_what_the_data_brings():
    """Fails when a stream or ranker name could open an element or close an attribute."""
    made = svg.mark('"><script>', svg.text("<b>&", x=0, y=0))
    assert "<script>" not in made
    assert "<b>" not in made
    assert 'data-tip="&quot;&gt;&lt;script&gt;"' in made
