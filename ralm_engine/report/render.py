"""One run directory in, one HTML file out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralm_engine.errors import InputError
from ralm_engine.report import embed
from ralm_engine.report.explorer import Json, Sources, explorer_data
from ralm_engine.report.model import RANKER_NAMES, RunFigures, ranker_name
from ralm_engine.report.section_baseline import baseline_section
from ralm_engine.report.section_charts import bucket_section, oracle_section
from ralm_engine.report.section_cost import Actual, cost_section
from ralm_engine.report.section_explorer import absent_explorer, explorer_section
from ralm_engine.report.section_head import head_section, setting, title
from ralm_engine.report.section_provenance import provenance_section
from ralm_engine.report.section_table import table_section
from ralm_engine.report.selection import select_strides, stride_limit
from ralm_engine.report.summary import load_figures
from ralm_engine.report.survey import survey_run
from ralm_engine.report.texts import StreamTexts
from ralm_engine.store.location import Location
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.text.passages import PassageStore

REPORT_NAME = "report.html"
STREAMS_NAME = "streams.arrow"
DEFAULT_STRIDES = 2000

# Together with 0.3 MB of page they keep the file below 8 MB, which browsers parse in under a second
# and mail programs accept.
_STRIDE_BYTES = 2_800_000
_TEXT_BYTES = 3_500_000

_NAVIGATION = (
    ("perplexity", "Perplexity"),
    ("oracle", "Oracle"),
    ("where", "Where it helps"),
    ("explorer", "Explorer"),
    ("cost", "Cost"),
    ("baseline", "Other run"),
    ("provenance", "Provenance"),
)


def render_report(
    run: str | Path,
    *,
    out: Path | None = None,
    baseline: str | Path | None = None,
    strides: int = DEFAULT_STRIDES,
) -> Path:
    """Writes the self-contained HTML report of a run, finished or not.

    Reads Parquet, Arrow and JSON files only; needs neither the model nor a GPU.

    Args:
        run: the run directory, a local path or a URI.
        out: where the page goes; `report.html` in the run directory when None.
        baseline: another run of the same text to set beside this one.
        strides: strides that the explorer holds at most.

    Returns:
        The path of the page.

    Raises:
        InputError: `run` is no run directory, holds damaged tables, or `strides` is below 1.
        RunError: the page cannot be written, or too many values of the run are not finite.
    """
    if strides < 1:
        raise InputError(f"the explorer needs at least 1 stride, not {strides}")
    opened = RunDirectory.open(run)
    other = RunDirectory.open(baseline) if baseline is not None else None
    page = _page(opened, other, limit=strides)
    if out is None:
        opened.write_text(REPORT_NAME, page)
        return Path(opened.location.path) / REPORT_NAME
    target = Location.of(out.expanduser().absolute().parent)
    try:
        target.make_directory()
        (target / out.name).write(page.encode())
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    return out


@dataclass(frozen=True, slots=True)
class _Explorer:
    markup: str
    data: Json


def _page(run: RunDirectory, other: RunDirectory | None, *, limit: int) -> str:
    config_toml = _config(run)
    config = tomllib.loads(config_toml)
    figures = load_figures(run)
    explorer = _explorer(run, config, limit=limit)
    actual = Actual.of(run.tables("timing"))
    sections = [
        table_section(figures, stride=setting(config, "retrieval", "stride")),
        oracle_section(figures),
        bucket_section(figures),
        explorer.markup,
        cost_section(run.manifest, actual),
        _against(other, figures, actual),
        provenance_section(run.manifest, figures, config_toml=config_toml),
    ]
    style, script = embed.asset("report.css"), embed.asset("report.js")
    return embed.fill(
        "page.html",
        policy=embed.html_text(embed.content_policy(style=style, script=script)),
        title=embed.html_text(title(config)),
        style=style,
        navigation=_navigation("".join(sections)),
        header=head_section(config, figures, streams=_stream_ids(run)),
        sections="\n".join(sections),
        footer=_footer(run.manifest),
        data=embed.script_json(explorer.data),
        script=script,
    )


def _navigation(body: str) -> str:
    """Links to the sections that are there."""
    there = [(name, label) for name, label in _NAVIGATION if f' id="{name}"' in body]
    return "".join(f'<a href="#{name}">{label}</a>' for name, label in there)


def _explorer(run: RunDirectory, config: Mapping[str, Any], *, limit: int) -> _Explorer:
    local = run.location.local
    if local is None or not (local / STREAMS_NAME).is_file():
        reason = f"There is no {STREAMS_NAME} in a local run directory, so no text can be shown."
        return _Explorer(absent_explorer(reason), {})
    survey = survey_run(run)
    fitting = stride_limit(
        wanted=limit,
        candidates=survey.most_candidates,
        targets=survey.most_targets,
        budget_bytes=_STRIDE_BYTES,
    )
    selection = select_strides(survey.gains, total=survey.total, limit=fitting)
    if not selection.total:
        return _Explorer(absent_explorer("No stride with a retrieval has been scored."), {})
    passages, missing = _passages(run)
    sources = Sources(
        streams=StreamTexts(local / STREAMS_NAME),
        passages=passages,
        missing=missing,
        query_length=int(setting(config, "retrieval", "query_length") or 32),
        text_budget=_TEXT_BYTES,
    )
    data = explorer_data(run, survey, selection, sources)
    data["ranker_names"] = {name: ranker_name(name) for name in [*data["rankers"], *RANKER_NAMES]}
    return _Explorer(explorer_section(data, selection), data)


def _passages(run: RunDirectory) -> tuple[PassageStore | None, str]:
    """The passage file, and why a text is not shown."""
    entry = run.manifest.get("passages")
    name = entry.get("path") if isinstance(entry, Mapping) else entry
    if not isinstance(name, str):
        return None, "The manifest does not name the passage file."
    try:
        store = PassageStore.open((run.location.local or Path()) / name)
    except InputError as error:
        return None, f"Passage texts cannot be shown: {error}."
    hashes = run.manifest.get("hashes")
    expected = hashes.get("passages") if isinstance(hashes, Mapping) else None
    if expected is not None and expected != store.content_hash:
        return None, f"Passage texts cannot be shown: {name} has changed since the run."
    return store, "Left out to keep this file small."


def _against(other: RunDirectory | None, figures: RunFigures, actual: Actual | None) -> str:
    if other is None:
        return ""
    costs = (actual, Actual.of(other.tables("timing")))
    return baseline_section(other.location.label, figures, load_figures(other), costs)


def _stream_ids(run: RunDirectory) -> list[str]:
    if (run.location / "streams.parquet").size_bytes() is None:
        return []
    ids: list[str] = run.tables("streams", columns=["stream_id"])["stream_id"].to_pylist()
    return ids


def _config(run: RunDirectory) -> str:
    try:
        data: bytes = (run.location / "config.toml").read().to_pybytes()
    except FileNotFoundError:
        return ""
    return data.decode()


def _footer(manifest: Mapping[str, Any]) -> str:
    version = manifest.get("engine_version")
    made = f"Made by ralm-engine {embed.html_text(version)}" if version else "Made by ralm-engine"
    return f"<p>{made} from the run's tables alone. This page fetches nothing.</p>"
