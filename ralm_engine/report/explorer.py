"""The data behind the stride explorer: chosen strides with texts, figures and passages, as JSON.

Legend: J strides of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.report.embed import script_json
from ralm_engine.report.selection import Selection, passage_order
from ralm_engine.report.survey import Survey
from ralm_engine.report.texts import StreamTexts
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.text.passages import PassageStore

Json: TypeAlias = dict[str, Any]

GAIN_EDGES = (0.1, 0.3, 0.7, 1.5, 3.0)
"""Lower bounds in nats of the five shades of a gain or loss; below the first there is no colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the texts come from, and how they are cut.

    Attributes:
        streams: the run's streams.
        passages: the passage file; None where it cannot be used.
        missing: why a passage's text is not shown, for readers.
        query_length: tokens whose text is the query.
        text_budget: bytes of passage texts that may be embedded.
    """

    streams: StreamTexts
    passages: PassageStore | None
    missing: str
    query_length: int
    text_budget: int


def explorer_data(
    run: RunDirectory, survey: Survey, selection: Selection, sources: Sources
) -> Json:
    """Everything the page's script needs, ready for JSON (no NaN, no infinity).

    Memory is bounded by the selection and one shard, not by the run.
    """
    records = _records(run, survey, selection, sources)
    order = passage_order([r["choice"] for r in records], [r["passage"] for r in records])
    place = {row: at for at, row in enumerate(order)}
    streams = list(dict.fromkeys(record["stream"] for record in records))
    number = {name: at for at, name in enumerate(streams)}
    for record in records:
        record["passage"] = [place[row] for row in record["passage"]]
        record["stream"] = number[record["stream"]]
    return {
        "bins": GAIN_EDGES,
        "rankers": list(survey.chosen),
        "query_length": sources.query_length,
        "missing_text": sources.missing,
        "streams": streams,
        "strides": records,
        "passages": _passages(order, sources),
    }


def _records(
    run: RunDirectory, survey: Survey, selection: Selection, sources: Sources
) -> list[Json]:
    parts = survey.part[selection.rows]
    records: list[Json] = []
    for part in dict.fromkeys(parts.tolist()):
        mine = selection.rows[parts == part]
        strides = run.shard("strides", part).take(survey.row[mine]).to_pylist()
        candidates = _by_stride(run.shard("candidates", part), strides)
        for at, stride in zip(mine.tolist(), strides, strict=True):
            choice = [int(ranks[at]) for ranks in survey.chosen.values()]
            key = (stride["stream_id"], stride["stride"])
            records.append(_record(stride, candidates.get(key, []), choice, sources))
    return records


def _by_stride(table: pa.Table, strides: Sequence[Json]) -> dict[tuple[str, int], list[Json]]:
    """The candidate lines of these strides, by stride and in order of rank."""
    numbers = pa.array(sorted({s["stride"] for s in strides}), pa.int32())
    names = pa.array(sorted({s["stream_id"] for s in strides}), pa.string())
    near = pc.and_(pc.is_in(table["stride"], numbers), pc.is_in(table["stream_id"], names))
    columns = ["stream_id", "stride", "rank", "passage", "score", "duplicate_of", "target_nll",
               "rank_nll"]  # fmt: skip
    lines = table.select(columns).filter(near).sort_by([("rank", "ascending")]).to_pylist()
    found: dict[tuple[str, int], list[Json]] = {}
    for line in lines:
        found.setdefault((line["stream_id"], line["stride"]), []).append(line)
    return found


def _record(
    stride: Json,
    candidates: Sequence[Json],
    choice: list[int],
    sources: Sources,
) -> Json:
    stream, begin, texts = stride["stream_id"], stride["target_begin"], sources.streams
    return {
        "stream": stream,
        "number": stride["stride"],
        "begin": begin,
        "text": texts.pieces(stream, begin=begin, length=stride["target_len"]),
        "query": texts.query(stream, position=begin, length=sources.query_length),
        "status": stride["retrieval_status"],
        "base": _figures(stride["baseline_nll"]),
        "choice": choice,
        "passage": [line["passage"] for line in candidates],
        "score": [_figure(line["score"]) for line in candidates],
        "rank_nll": [_total(line["rank_nll"]) for line in candidates],
        "nll": [_figures(line["target_nll"]) for line in candidates],
        "duplicate": [line["duplicate_of"] for line in candidates],
    }


def _passages(order: Sequence[int], sources: Sources) -> list[list[object]]:
    """[row, id, title, text or None] of each passage; texts until their budget is spent."""
    found: list[list[object]] = []
    left = sources.text_budget
    for row in order:
        store = sources.passages
        if store is None or not 0 <= row < store.num_passages:
            found.append([row, "", "", None])
            continue
        text = store.text(row) if left > 0 else None
        if text is not None:
            left -= len(script_json(text).encode())
        found.append([row, store.id(row), store.title(row), text if left >= 0 else None])
    return found


def _figure(value: float | None) -> float | None:
    """Rounded to 0.001 nat, which is more than anyone reads off a page; null where not finite."""
    return round(value, 3) if value is not None and math.isfinite(value) else None


def _figures(values: Sequence[float]) -> list[float | None]:
    return [_figure(value) for value in values]


def _total(values: Sequence[float] | None) -> float | None:
    return _figure(sum(values)) if values else None
