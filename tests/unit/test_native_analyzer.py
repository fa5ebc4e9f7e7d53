"""Text to terms, the way Lucene's English analyzer does it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ralm_engine._native import analyze
from ralm_engine.errors import InputError


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \t\n", []),
        ("... --- !!", []),
        ("The and OF to", []),
        ("Foxes' dens; the fox's", ["fox", "den", "fox"]),
        ("it\u2019s James\uff07S", ["jame"]),
        ("foo\x00bar", ["foo", "bar"]),
        ("\u0130stanbul \u0394\u03a3", ["istanbul", "\u03b4\u03c3"]),
        ("\u4e1c\u4eac \ud55c\uad6d", ["\u4e1c", "\u4eac", "\ud55c\uad6d"]),
        ("\u30ab\u30ca\u304b", ["\u30ab\u30ca", "\u304b"]),
        ("\U0001f469\u200d\U0001f4bb a", ["\U0001f469\u200d\U0001f4bb"]),
        ("1\ufe0f\u20e3", ["1\ufe0f\u20e3"]),
        ("3.14, 1,000; a.b c_d", ["3.14", "1,000", "a.b", "c_d"]),
        ("\u0e44\u0e17\u0e22abc", ["\u0e44\u0e17\u0e22", "abc"]),
        ("caresses ponies ties cats", ["caress", "poni", "ti", "cat"]),
        ("feed agreed plastered", ["feed", "agre", "plaster"]),
        ("possibly analogies", ["possibl", "analog"]),
    ],
)  # fmt: skip
def test_terms(text, terms):
    """Fails when word break, possessives, lower case, stop words or stemming changes."""
    assert analyze(text) == terms


@pytest.mark.parametrize(("unit", "per_token"), [("a", 255), ("\u00e9", 255), ("\U00010400", 127)])
def test_long_runs_are_cut_as_in_lucene(unit, per_token):
    """Fails when the limit of 255 is counted in anything but UTF-16 units."""
    lowered = unit.lower()
    assert analyze(unit * (per_token + 2)) == [lowered * per_token, lowered * 2]


def test_a_lone_surrogate_is_an_error_not_a_crash():
    """Fails when text that is not Unicode gets into the native code (probe 20)."""
    with pytest.raises(InputError, match="surrogate"):
        analyze("a\ud800b")


@given(st.text(max_size=300))
@example("\U000e0062\U000e007f" * 200)
@example("a'" * 400)
def test_terms_are_lower_case_pieces_without_white_space(text):
    """Fails when the automaton runs past a token or stemming leaves broken UTF-8."""
    for term in analyze(text):
        assert term
        assert not any(c.isspace() for c in term)
        assert analyze("x " + text)[: len(analyze("x"))] == ["x"]


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_line_break_separates(left, right):
    """Fails when state leaks over a boundary: titles and texts are joined by a line break."""
    assert analyze(f"{left} \n{right}") == analyze(left + " ") + analyze(right)
