"""The whole page: what it says, that it stays bounded, and what it needs to be made."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ralm_engine.errors import InputError
from ralm_engine.ralm.analysis import analyze_run, write_summary
from ralm_engine.report import render_report
from ralm_engine.report.finding import details, headline
from ralm_engine.report.model import Estimate, RankerFigures, RunFigures
from ralm_engine.report.summary import figures_of, load_figures
from ralm_engine.store.rundir import RunDirectory


def load_run_builder():
    """tests/report_run.py by path: pytest's importlib mode has no package for tests."""
    path = Path(__file__).parent.parent / "report_run.py"
    spec = importlib.util.spec_from_file_location("report_run", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["report_run"] = module
    spec.loader.exec_module(module)
    return module


report_run = load_run_builder()

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Document(HTMLParser):
    """Checks nesting and collects text, ids and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named[key] for key in ("href", "src") if key in named]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return report_run.build(tmp_path_factory.mktemp("render") / "small")


@pytest.fixture(scope="module")
def page(run) -> str:
    return render_report(run).read_text("utf-8")


@pytest.fixture(scope="module")
def words(page) -> str:
    return " ".join(Document(page).text)


def embedded(page: str) -> dict:
    return json.loads(re.search(r'id="explorer-data">(.*?)</script>', page, re.DOTALL)[1])


def test_it_renders_where_torch_and_transformers_cannot_be_imported(run, tmp_path):
    """Fails when the report, or anything it imports, needs a model library."""
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'ray', 'triton'):\n"
        "    sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from ralm_engine.report import render_report\n"
        f"print(render_report({str(run)!r}, out=Path({str(tmp_path / 'x.html')!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.html").stat().st_size > 50_000


def test_the_markup_is_well_nested_and_its_ids_are_unique(page):
    document = Document(page)
    assert len(document.ids) == len(set(document.ids))
    assert all(link.startswith("#") and link[1:] in document.ids for link in document.links)


def test_every_denominator_stands_in_the_head_of_its_column(words, run):
    """Fails when one perplexity could be mistaken for another (probe 6)."""
    counts = load_figures(RunDirectory.open(run)).counts
    for unit, name in (("token", "scored tokens"), ("word", "words"), ("space", "spaces"),
                       ("byte", "bytes")):  # fmt: skip
        assert f"per {unit} \N{DIVISION SIGN} {counts[unit]:,} {name}" in words


def test_the_table_shows_the_figures_of_the_analysis(page, run):
    summary = analyze_run(run)
    rows = re.findall(r'<th scope="row">([^<]+)<span class="desc">.*?</tr>', page)
    assert rows == ["No retrieval", "First passage", "Random passage", "Zero-shot reranking",
                    "Oracle"]  # fmt: skip
    for ranker, values in summary["perplexity"].items():
        low, high = summary["interval"][ranker]["token"]
        cell = rf'{values["token"]:.2f}(</span>)?<span class="range">{low:.2f} to {high:.2f}'
        assert re.search(cell, page), ranker


def test_the_best_ranker_is_bold_and_the_oracle_never_is(page):
    bold = re.findall(r'<tr[^>]*><th scope="row">([^<]+)<[^\n]*?</tr>', page)
    assert bold
    rows = re.findall(r"<tr[^>]*>.*?</tr>", page)
    best = [re.search(r'row">([^<]+)', row)[1] for row in rows if 'class="best"' in row]
    assert best == ["First passage"]


def test_hostile_text_is_in_the_data_and_nowhere_as_markup(page):
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    texts = [text for *_, text in embedded(page)["passages"]]
    assert report_run.HOSTILE in texts
    assert page.count("</script>") == 2


def test_hostile_names_are_text_too(tmp_path):
    """Fails when a stream id, model name or configuration value could become markup."""
    hostile = report_run.build(
        tmp_path / "r",
        report_run.Shape(manifest={"code_revision": "<img src=x>", "note": "</script><b>"}),
    )
    page = render_report(hostile).read_text("utf-8")
    assert "<img src=x>" not in page
    assert page.count("</script>") == 2


def test_a_large_run_stays_small_and_says_what_it_shows(tmp_path):
    """Fails when the page grows with the run."""
    run = report_run.build(tmp_path / "large", report_run.Shape(copies=10, k=12))
    page = render_report(run, strides=300).read_text("utf-8")
    shown = len(embedded(page)["strides"])
    assert 260 <= shown <= 300
    assert re.search(rf"{shown} of 8\d\d strides: \d windows of 40, evenly spread", page)
    assert len(page.encode()) < 800_000


def test_an_unfinished_run_is_reported_and_called_unfinished(tmp_path):
    run = report_run.build(tmp_path / "r", report_run.Shape(shards_missing=2))
    page = render_report(run).read_text("utf-8")
    assert "This run is not finished: 3 of 5 shards are scored." in page


def test_word_perplexities_wait_for_the_whole_text(tmp_path):
    """Fails when a part of the text is divided by the words of all of it."""
    run = report_run.build(tmp_path / "r", report_run.Shape(shards=4))
    (run / "commits" / "part-00003.json").unlink()
    page = render_report(run).read_text("utf-8")
    assert page.count("known when all text is scored") == 4
    assert 'class="best">n/a' not in page


def test_a_run_without_strides_or_text_still_gives_a_page(tmp_path):
    """Fails when a run with nothing scored crashes the report."""
    with RunDirectory.create_or_resume(
        tmp_path / "empty", identity={}, manifest={"num_shards": 1}, config_toml=""
    ):
        pass
    page = render_report(tmp_path / "empty").read_text("utf-8")
    assert "No token was scored" in page
    assert "There is no streams.arrow" in page
    assert embedded(page) == {}
    Document(page)


def test_a_changed_passage_file_is_not_passed_off_as_the_one_that_was_used(tmp_path):
    run = report_run.build(tmp_path / "r")
    other = [report_run.Document("x", "Other", "text")]
    report_run.build_passages(other, tmp_path / "r-passages.arrow")
    data = embedded(render_report(run).read_text("utf-8"))
    assert "has changed since the run" in data["missing_text"]
    assert {text for *_, text in data["passages"]} == {None}


def test_a_stored_summary_is_used_and_a_stale_one_is_not(tmp_path):
    mine = report_run.build(tmp_path / "r")
    opened = RunDirectory.open(mine)
    summary = analyze_run(mine)
    summary["perplexity"]["none"]["token"] = 123.456
    write_summary(opened, summary)
    assert load_figures(opened).token_perplexity("none") == 123.456
    summary["shards"]["committed"] = 1
    write_summary(opened, summary)
    assert load_figures(opened).token_perplexity("none") != 123.456
    (mine / "summary.json").write_text("{ torn")
    assert load_figures(opened).token_perplexity("none") != 123.456


def test_another_run_is_set_beside_this_one(run, tmp_path):
    page = render_report(run, out=tmp_path / "x.html", baseline=run).read_text("utf-8")
    section = page[page.index('id="baseline"') :]
    assert "0.000%" in section
    assert "1.00 x" in section


def test_the_page_appears_whole_and_leaves_nothing_beside_it(run, tmp_path):
    out = tmp_path / "new" / "page.html"
    assert render_report(run, out=out) == out
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    assert render_report(run) == run / "report.html"


def test_wrong_input_is_one_clear_line(run, tmp_path):
    with pytest.raises(InputError, match=r"is no run directory"):
        render_report(tmp_path)
    with pytest.raises(InputError, match=r"cannot write .*dev/null"):
        render_report(run, out=Path("/dev/null/x.html"))
    with pytest.raises(InputError, match=r"at least 1 stride, not 0"):
        render_report(run, strides=0)


def test_the_report_is_the_same_each_time(run, tmp_path):
    """Fails when a clock, a random number or an unordered set gets into the page."""
    one = render_report(run, out=tmp_path / "1.html").read_bytes()
    assert render_report(run, out=tmp_path / "2.html").read_bytes() == one


def figures(none: float | None, first: float | None, low: float, high: float) -> RunFigures:
    def line(ranker: str, value: float | None, against: Estimate | None) -> RankerFigures:
        estimate = Estimate(value=value)
        return RankerFigures(
            ranker=ranker, perplexity={"token": estimate}, divisor={"token": 10},
            bits_per_byte=estimate, against_none=against,
        )  # fmt: skip

    change = None
    if none is not None and first is not None:
        change = Estimate(value=first - none, low=low, high=high)
    return RunFigures(
        rankers=[line("none", none, None), line("first", first, change)], counts={},
        oracle_at=[], oracle_choice=[], oracle_behind=0, strides_with_candidates=0, lookback=[],
        buckets={}, facts={}, streams=[], shards_done=1, shards_total=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("none", "first", "bounds", "expected"),
    [
        (25.34, 22.0, (-4.0, -2.0), "The first retrieved passage lowers token perplexity: 25.34"),
        (25.34, 26.2, (0.1, 1.5), "The first retrieved passage raises token perplexity: 25.34"),
        (25.34, 25.2, (-0.9, 0.5), "The first retrieved passage makes no clear difference to"),
        (None, None, (0, 0), "No token was scored"),
        (25.34, None, (0, 0), "Without retrieval the token perplexity is 25.34."),
    ],
)
def test_the_finding_claims_no_more_than_its_interval(none, first, bounds, expected):
    """Fails when a difference whose interval holds 0 is called a gain or a loss."""
    text = headline(figures(none, first, *bounds))
    assert text.startswith(expected)
    if first is not None:
        assert "95% interval" in text


def test_details_name_reranking_and_the_bound(run):
    text = " ".join(details(figures_of(analyze_run(run))))
    assert "Zero-shot reranking reaches" in text
    assert "best of 8 passages, which needs the target itself" in text
