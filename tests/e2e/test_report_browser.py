"""The report in a real browser: what a reader clicks, types and hears; and what never happens."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from ralm_engine.report.render import render_report

TESTS = Path(__file__).parent.parent


def load(name: str, path: Path):
    """A helper module by path: pytest's importlib mode has no package for tests."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


report_run = load("report_run", TESTS / "report_run.py")
devtools = load("devtools", TESTS / "e2e" / "devtools.py")

CHROMIUM = devtools.find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium found; install the Debian package chromium"
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    """The small run, one of many strides, and one whose passage file is gone."""
    folder = tmp_path_factory.mktemp("reports")
    small = report_run.build(folder / "small")
    large = report_run.build(folder / "large", report_run.Shape(copies=9))
    lost = report_run.build(
        folder / "lost",
        report_run.Shape(manifest={"passages": {"path": str(folder / "gone.arrow")}}),
    )
    return {
        "small": render_report(small),
        "large": render_report(large, strides=200, baseline=small),
        "lost": render_report(lost),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = devtools.Page(CHROMIUM, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


@pytest.fixture
def page(browser, reports):
    """The small report, freshly opened; afterwards nothing may have gone wrong in the page."""
    browser.errors.clear()
    browser.requests.clear()
    browser.view(width=1280, height=900)
    browser.open(reports["small"])
    yield browser
    assert browser.errors == []
    asked = [url for url in browser.requests if not url.startswith("file:///")]
    assert asked == []
    assert browser.js("window.hacked === undefined")


def text_of(page, selector: str) -> str:
    return page.js(f"document.querySelector({json.dumps(selector)}).innerText")


def count_of(page, selector: str) -> int:
    return page.js(f"document.querySelectorAll({json.dumps(selector)}).length")


def note_of(page) -> str:
    return text_of(page, "#explorer .note")


def gains_shown(page) -> list[float]:
    shown = page.js("[...document.querySelectorAll('.card .gain')].map(n => n.innerText)")
    return [float(text.replace("\u2212", "-")) for text in shown]


def test_the_text_reads_as_it_stands_in_the_stream(page):
    """Fails when a token is lost, doubled or out of order, or half a character appears."""
    flow = page.js("document.querySelector('#strides .flow').textContent")
    stream = report_run.ARTICLES["lighthouses"]
    read = flow.replace("\u00b7", "")
    assert "\ufffd" not in read
    assert read == stream[-len(read) :]
    assert "\U0001f4a1" in read


def test_a_character_of_several_tokens_shows_once_with_their_sum(page):
    """Fails when byte tokens show as boxes or dots, or the figure is that of one byte alone."""
    dots = page.js(
        "[...document.querySelectorAll('#strides .stride')].flatMap(stride =>"
        "[...stride.querySelectorAll('.tok')].slice(1).filter(t => t.textContent === '\u00b7'))"
        ".length"
    )
    assert dots == 0
    tip = page.js("document.querySelector('#strides .tok[data-tip*=\"tokens):\"]').dataset.tip")
    assert re.search(r"\([2-4] tokens\): [\d.]+ \u2192 [\d.]+ nat, gain", tip)


def test_a_click_shows_query_figures_and_the_passages_that_caused_them(page):
    page.click("#strides .stride .tok", 9)
    panel = text_of(page, "#detail")
    assert "stride 2, tokens 32" in panel
    assert "Query (at most 32 tokens)" in panel
    assert count_of(page, "#detail .candidate") == 8
    for word in ("score", "rank NLL", "target NLL", "gain", "baseline"):
        assert word in panel
    assert count_of(page, "#detail .candidate-head[aria-expanded=true]") == 1
    shown = text_of(page, "#detail .passage-text")
    assert any(shown == text for _, text in report_run.PASSAGES)
    page.click("#detail .candidate-head", 5)
    assert count_of(page, "#detail .candidate-head[aria-expanded=true]") == 2


def test_the_figures_of_the_panel_add_up(page):
    """Fails when gain is not baseline minus chosen, or the sum is not the sum of its tokens."""
    page.click("#strides .stride .tok", 9)
    rows = page.js(
        "[...document.querySelectorAll('#detail table.tokens tbody tr')].map("
        "r => [...r.querySelectorAll('td')].map(c => c.innerText))"
    )
    values = [[float(cell.replace("\u2212", "-")) for cell in row] for row in rows]
    for baseline, chosen, gain in values:
        assert gain == pytest.approx(baseline - chosen, abs=0.0151)  # three roundings to 0.01
    for column in range(3):
        parts = sum(row[column] for row in values[:-1])
        assert parts == pytest.approx(values[-1][column], abs=0.005 * len(values) + 1e-9)


def test_a_hostile_passage_is_text(page):
    """Fails when markup from a passage or a title becomes an element."""
    page.click("#strides .stride .tok", 5)
    assert text_of(page, "#detail .passage-text").startswith("<script>window.hacked = 1")
    assert report_run.HOSTILE_TITLE in text_of(page, "#detail .passage-title")
    assert count_of(page, "#detail script") == 0
    assert count_of(page, "main img") == 0


def test_arrow_keys_walk_the_strides_enter_opens_and_escape_returns(page):
    page.js("document.querySelector('#strides .stride').focus()")
    page.key("Enter")
    assert "stride 0," in text_of(page, "#detail h3")
    page.key("ArrowRight")
    page.key("ArrowDown")
    assert "stride 2," in text_of(page, "#detail h3")
    page.key("ArrowLeft")
    assert "stride 1," in text_of(page, "#detail h3")
    spoken = page.js("document.querySelector('[role=status]#spoken').textContent")
    assert re.match(r"stride 1, tokens 28\S31\. First passage takes rank 0: gain \+", spoken)
    assert count_of(page, "#strides .stride[aria-pressed=true]") == 1
    assert count_of(page, "#strides .stride[tabindex='0']") == 1
    page.key("End")
    page.key("Escape")
    assert page.js("document.activeElement.matches('#strides .stride')")


def test_tab_reaches_every_control_in_order(page):
    """Fails when something can only be reached with a mouse."""
    page.js("document.body.focus()")
    seen = []
    for _ in range(60):
        page.key("Tab")
        seen.append(page.js("document.activeElement.id || document.activeElement.className"))
    for name in ("theme", "ranker", "order", "search", "stride"):
        assert name in seen
    order = [seen.index(name) for name in ("ranker", "order", "search", "stride")]
    assert order == sorted(order)


def test_filters_sort_by_what_they_name(page):
    page.choose("#order", "gains")
    gains = gains_shown(page)
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    page.choose("#order", "losses")
    losses = gains_shown(page)
    assert losses == sorted(losses)
    assert losses[-1] < 0


def test_the_ranker_changes_choice_colour_and_gain(page):
    page.click("#strides .stride .tok", 9)
    before = text_of(page, "#detail .what")
    page.choose("#ranker", "2")
    after = text_of(page, "#detail .what")
    assert before.startswith("First passage takes rank 0")
    assert after.startswith("Oracle takes rank")
    page.choose("#order", "disagree")
    assert "never disagrees with itself" in text_of(page, "#strides")
    page.choose("#ranker", "0")
    assert count_of(page, "#strides .card") > 5


def test_the_search_finds_target_query_and_title(page):
    page.js("document.getElementById('search').focus()")
    page.type("smeaton")
    found = count_of(page, "#strides .card")
    assert 0 < found < 40
    assert re.match(rf"{found} of \d+ strides", text_of(page, "#explorer-status"))
    page.js("document.getElementById('search').value = ''")
    page.type("nowhere to be found")
    assert "No stride matches" in text_of(page, "#strides")


def test_a_stride_without_a_hit_and_a_broken_candidate_say_so(page):
    page.click("#strides .stride[data-i='3'] .tok", 0)
    assert "No passage was retrieved (no_query_terms)" in text_of(page, "#detail .what")
    page.click("#strides .stride[data-i='5'] .tok", 0)
    assert "n/a" in text_of(page, "#detail .candidate:nth-child(3)")


def test_charts_show_values_on_hover_and_focus(page):
    page.click("#oracle svg.chart [data-tip] .hit", 2)
    tip = text_of(page, "#tip")
    assert re.fullmatch(r"depth 3: [\d.]+ \(95% [\d.]+ to [\d.]+\)", tip)
    page.js("document.querySelector('#oracle svg.chart [data-tip]').focus()")
    page.key("ArrowRight")
    assert text_of(page, "#tip").startswith("depth 2:")
    labels = page.js("[...document.querySelectorAll('svg.chart')].map(n => n.ariaLabel)")
    assert labels
    assert all(labels)
    assert count_of(page, "figure details table") == count_of(page, "figure")


def test_many_strides_are_paged(page, reports):
    page.open(reports["large"])
    shown = re.match(r"(\d+) of \d+ strides: \d windows of 40, evenly spread", note_of(page))
    assert 192 - 40 < int(shown[1]) <= 200
    page.choose("#order", "gains")
    first = text_of(page, "#strides .card")
    pages = int(re.fullmatch(r"Page 1 of (\d+)", text_of(page, "#page"))[1])
    assert pages > 2
    for number in range(2, pages + 1):
        page.click("#next")
        assert text_of(page, "#page") == f"Page {number} of {pages}"
    assert page.js("document.getElementById('next').disabled")
    assert text_of(page, "#strides .card") != first
    assert "Against another run" in text_of(page, "#baseline")


def test_a_lost_passage_file_is_named_and_ids_stay(page, reports):
    page.open(reports["lost"])
    page.click("#strides .stride .tok", 9)
    panel = text_of(page, "#detail .passage")
    assert "gone.arrow does not exist" in panel
    assert re.search(r"passage \d+", panel)


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)` as WCAG defines it."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_every_shade_keeps_a_contrast_of_4_5(page, dark):
    """Fails when a colour of the legend makes its text hard to read, in either scheme."""
    page.view(width=1280, height=900, dark=dark)
    pairs = page.js(
        "[...document.querySelectorAll('.legend li')].map(n => { const s = getComputedStyle(n);"
        "const b = s.backgroundColor; return [s.color, b === 'rgba(0, 0, 0, 0)'"
        " ? getComputedStyle(document.body).backgroundColor : b]; })"
    )
    assert len({background for _, background in pairs}) == 11
    for ink, background in pairs:
        bright, dim = sorted((luminance(ink), luminance(background)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, (ink, background)


def test_the_theme_button_overrides_the_scheme(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.js(colour)
    page.click("#theme")
    page.click("#theme")
    assert page.js("document.documentElement.dataset.theme") == "dark"
    assert luminance(page.js(colour)) < 0.05 < luminance(light)


def test_a_phone_needs_no_sideways_scrolling_and_gets_a_sheet(page):
    page.view(width=400, height=860)
    labels = "[...document.querySelectorAll('svg.chart text')]"
    right = f"Math.max(...{labels}.map(n => n.getBoundingClientRect().right))"
    assert page.js(right) <= page.js("document.documentElement.clientWidth")
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.js(width) == 0
    page.click("#strides .stride .tok", 9)
    assert page.js("getComputedStyle(document.getElementById('detail')).position") == "fixed"
    assert page.js(width) == 0
    page.click("#detail .close")
    assert page.js("getComputedStyle(document.getElementById('detail')).display") == "none"


def test_it_prints_without_controls_and_with_its_provenance(page):
    page.view(width=760, height=1000, media="print")
    hidden = "getComputedStyle(document.getElementById('explorer-controls')).display"
    assert page.js(hidden) == "none"
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert count_of(page, "#provenance details[open]") >= 3
    page.js("window.dispatchEvent(new Event('afterprint'))")
    assert count_of(page, "#provenance details[open]") == 0
    assert page.pdf().startswith(b"%PDF-")


def test_the_test_itself_sees_errors_and_requests(browser, tmp_path):
    """A mutation check: a page that does wrong must be caught by the fixture's lists."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='https://example.invalid/a.png'><script>throw Error('x')</script>")
    browser.errors.clear()
    browser.requests.clear()
    browser.open(bad)
    assert any("example.invalid" in url for url in browser.requests)
    assert any("Error: x" in error for error in browser.errors)
