"""The explorer's data against the tables it comes from, one stride at a time."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

from ralm_engine.ralm.reference import choose_slowly
from ralm_engine.report.embed import script_json
from ralm_engine.report.explorer import Sources, explorer_data
from ralm_engine.report.selection import select_strides
from ralm_engine.report.survey import survey_run
from ralm_engine.report.texts import StreamTexts
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.text.passages import PassageStore
from ralm_engine.text.stream_store import StreamStore


def load_run_builder():
    """tests/report_run.py by path: pytest's importlib mode has no package for tests."""
    path = Path(__file__).parent.parent / "report_run.py"
    spec = importlib.util.spec_from_file_location("report_run", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["report_run"] = module
    spec.loader.exec_module(module)
    return module


report_run = load_run_builder()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return RunDirectory.open(report_run.build(tmp_path_factory.mktemp("run") / "small"))


def data_of(run: RunDirectory, *, limit: int = 10_000, text_budget: int = 1_000_000, **changes):
    survey = survey_run(run)
    selection = select_strides(survey.gains, total=survey.total, limit=limit)
    sources = {
        "streams": StreamTexts(run.location.local / "streams.arrow"),
        "passages": PassageStore.open(Path(run.manifest["passages"]["path"])),
        "missing": "gone",
        "query_length": 32,
        "text_budget": text_budget,
        **changes,
    }
    return explorer_data(run, survey, selection, Sources(**sources))


@pytest.fixture(scope="module")
def data(run):
    return data_of(run)


@pytest.fixture(scope="module")
def lines(run):
    """Every stride's line with its candidate lines, straight from the tables."""
    candidates = run.tables("candidates").to_pylist()
    return [
        (
            stride,
            [
                line
                for line in candidates
                if (line["stream_id"], line["stride"]) == (stride["stream_id"], stride["stride"])
            ],
        )
        for stride in run.tables("strides").to_pylist()
        if stride["stride"] >= 0
    ]


def close(written: float | None, value: float) -> bool:
    return (written is None) if not math.isfinite(value) else abs(written - value) <= 0.0006


def test_every_stride_carries_the_figures_of_its_lines(data, lines):
    """Fails when a stride gets the candidates of another, or a figure is lost or shifted."""
    assert len(data["strides"]) == len(lines)
    for record, (stride, candidates) in zip(data["strides"], lines, strict=True):
        assert data["streams"][record["stream"]] == stride["stream_id"]
        assert (record["number"], record["begin"]) == (stride["stride"], stride["target_begin"])
        assert all(map(close, record["base"], stride["baseline_nll"]))
        rows = [data["passages"][at][0] for at in record["passage"]]
        assert rows == [line["passage"] for line in candidates]
        for at, line in enumerate(candidates):
            assert all(map(close, record["nll"][at], line["target_nll"]))
            assert close(record["rank_nll"][at], sum(line["rank_nll"]))
            assert close(record["score"][at], line["score"])
            assert record["duplicate"][at] == line["duplicate_of"]


def test_choices_are_those_of_the_slow_twin(data, lines):
    for record, (_, candidates) in zip(data["strides"], lines, strict=True):
        expected = [choose_slowly(ranker, candidates) for ranker in data["rankers"]]
        assert record["choice"] == expected
    assert data["rankers"] == ["first", "logprob", "oracle"]


def test_the_gains_that_select_strides_are_baseline_minus_choice(run, lines):
    """Fails when the extremes of a large run would be picked by a wrong figure."""
    survey = survey_run(run)
    for ranker in ("first", "logprob", "oracle"):
        for gain, rank, (stride, candidates) in zip(
            survey.gains[ranker], survey.chosen[ranker], lines, strict=True
        ):
            base = sum(stride["baseline_nll"])
            own = sum(candidates[rank]["target_nll"]) if rank >= 0 else base
            # float32 sums of at most 4 NLLs below 64: half a unit in the last place each.
            assert gain == pytest.approx(base - own, abs=8 * 64 * 2**-24)


def test_pieces_joined_are_the_text_and_no_character_is_cut(data, run):
    """Fails when emoji or CJK bytes become U+FFFD or a token's text is given twice."""
    store = StreamStore.open(run.location.local / "streams.arrow")
    for number, name in enumerate(data["streams"]):
        joined = "".join(
            "".join(record["text"]) for record in data["strides"] if record["stream"] == number
        )
        text = store.text(store.stream_ids.index(name))
        assert joined == text[-len(joined) :]
        assert len(joined) > len(text) / 2
    assert any("" in record["text"] for record in data["strides"])


def test_the_query_is_the_text_before_the_target(data, run):
    store = StreamStore.open(run.location.local / "streams.arrow")
    record = data["strides"][10]
    text, (begin, end) = store.text(0), store.offsets(0)
    at = record["begin"]
    assert record["query"] == text[begin[at - 32] : end[at - 1]]


def test_odd_strides_keep_their_shape(data, lines):
    at = next(i for i, (s, _) in enumerate(lines) if s["retrieval_status"] == "no_query_terms")
    bare = data["strides"][at]
    assert bare["choice"] == [-1, -1, -1]
    assert bare["passage"] == []
    broken = next(i for i, (_, cs) in enumerate(lines) if any(c["status"] != "ok" for c in cs))
    assert data["strides"][broken]["nll"][2][0] is None
    assert data["strides"][broken]["choice"][2] != 2


def test_everything_survives_the_way_through_json(data):
    assert json.loads(script_json(data))["strides"] == data["strides"]


def test_passages_stand_once_with_their_text(data):
    rows = [row for row, *_ in data["passages"]]
    assert len(rows) == len(set(rows))
    for row, identifier, title, text in data["passages"]:
        assert (title, text) == report_run.PASSAGES[row]
        assert identifier == f"p{row}"


def test_texts_stop_at_their_budget_and_chosen_passages_come_first(run):
    """Fails when a large run's texts could make the page too big to open."""
    data = data_of(run, text_budget=900)
    with_text = [text for *_, text in data["passages"] if text is not None]
    assert 0 < len(with_text) < len(data["passages"])
    assert sum(len(script_json(text).encode()) for text in with_text) <= 900
    chosen = {s["passage"][rank] for s in data["strides"] for rank in s["choice"] if rank >= 0}
    assert 0 in chosen


def test_without_a_passage_file_ids_stay(run):
    data = data_of(run, passages=None)
    assert {text for *_, text in data["passages"]} == {None}
    assert data["missing_text"] == "gone"


def test_a_row_beyond_the_passage_file_has_no_text_and_no_crash(run, tmp_path):
    small = report_run.build_passages([report_run.Document("x", "t", "y")], tmp_path / "p.arrow")
    data = data_of(run, passages=small)
    assert [text for row, _, _, text in data["passages"] if row > 0 and text is not None] == []


def test_a_subset_reads_only_the_shards_it_needs(run, monkeypatch):
    """Fails when showing a few strides of a large run loads all of it a second time."""
    survey = survey_run(run)
    rows = select_strides({}, total=survey.total, limit=40).rows
    needed = set(survey.part[rows].tolist())
    read = []
    shard = RunDirectory.shard
    monkeypatch.setattr(
        RunDirectory, "shard", lambda self, name, part: read.append(part) or shard(self, name, part)
    )
    sources = Sources(
        streams=StreamTexts(run.location.local / "streams.arrow"),
        passages=None, missing="", query_length=32, text_budget=0,
    )  # fmt: skip
    selection = select_strides({}, total=survey.total, limit=40)
    assert len(explorer_data(run, survey, selection, sources)["strides"]) == 40
    assert set(read) == needed
    assert len(needed) < 3
