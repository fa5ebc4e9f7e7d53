"""Data inside a page: nothing in it can end the script element, and nothing is lost."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.report import embed

HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u2029 & ]]> \0 \U0001f4a1"


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner, max_size=4)))
def test_json_keeps_every_text_and_holds_no_markup(value):
    """Fails when a passage could close the element that carries it."""
    written = embed.script_json([value, HOSTILE])
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == [value, HOSTILE]


def test_a_nan_is_an_error_and_never_a_word_that_json_does_not_know():
    with pytest.raises(ValueError, match="JSON"):
        embed.script_json([float("nan")])


def test_the_policy_names_exactly_this_style_and_script_and_no_origin():
    policy = embed.content_policy(style="a{}", script="1")
    digest = base64.b64encode(hashlib.sha256(b"1").digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy


def test_html_text_escapes_quotes_and_replaces_nul():
    assert embed.html_text("a\0\"'<") == "a\ufffd&quot;&#x27;&lt;"


@pytest.mark.parametrize("name", ["page.html", "explorer.html", "report.css", "report.js"])
def test_assets_load_nothing_from_anywhere(name):
    """Fails when a font, script or image would be fetched, or text could be parsed as markup."""
    text = embed.asset(name)
    assert not re.search(r"https?:|@import|url\(|\bsrc=|<link", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", text)
    assert text.isascii()
