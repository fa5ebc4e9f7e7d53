"""The top of the page: what was run, and what came out, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralm_engine.report import finding, markup, numbers
from ralm_engine.report.embed import html_text
from ralm_engine.report.model import RunFigures

Config = Mapping[str, Any]


def head_section(config: Config, figures: RunFigures, *, streams: list[str]) -> str:
    """Finding, cautions and the key facts of the run."""
    sentences = " ".join(finding.details(figures))
    parts = [f"<h1>{html_text(finding.headline(figures))}</h1>"]
    if sentences:
        parts.append(f'<p class="lede">{html_text(sentences)}</p>')
    parts += [f'<p class="caution">{html_text(text)}</p>' for text in _cautions(figures)]
    parts.append(markup.facts(_facts(config, figures, streams), kind="facts"))
    return "".join(parts)


def setting(config: Config, section: str, key: str) -> Any:
    """One value of the resolved configuration; None where it has none."""
    table = config.get(section)
    return table.get(key) if isinstance(table, Mapping) else None


def title(config: Config) -> str:
    """The document title."""
    return f"{_model(config)}: ralm-engine report"


def _model(config: Config) -> str:
    return str(setting(config, "model", "name") or "unknown model")


def _cautions(figures: RunFigures) -> list[str]:
    found = []
    done, total = figures.shards_done, figures.shards_total
    if total is not None and done < total:
        found.append(
            f"This run is not finished: {numbers.count(done)} of {numbers.count(total)} shards are "
            "scored. Every figure below covers these alone."
        )
    without, given = figures.facts["nonfinite_baseline"], figures.facts["nonfinite_candidates"]
    if without or given:
        found.append(
            f"NaN or infinite NLLs: {numbers.count(without)} without retrieval, left out of all "
            f"sums, and {numbers.count(given)} given a candidate, which is then never chosen."
        )
    return found


def _facts(config: Config, figures: RunFigures, streams: list[str]) -> list[tuple[str, str]]:
    def of(section: str, key: str) -> str:
        value = setting(config, section, key)
        return numbers.MISSING if value is None else _plain(value)

    named = ", ".join(streams[:2]) + (f" and {len(streams) - 2} more" if len(streams) > 2 else "")
    slack = setting(config, "window", "context_slack")
    window = f"{of('window', 'max_length')} tokens, passage at most "
    window += of("window", "max_passage_length")
    if slack:
        window += f", context slack {slack}"
    return [
        ("Streams", named or numbers.MISSING),
        ("Model", f"{_model(config)}, {of('model', 'dtype')}"),
        ("Passages", of("passages", "path")),
        ("Retrieval", f"{of('retrieval', 'engine')}, k = {of('retrieval', 'k')}"),
        ("Stride and query", f"{of('retrieval', 'stride')} and "
                             f"{of('retrieval', 'query_length')} tokens"),
        ("Window", window),
        ("Warm-up", of("window", "warmup")),
        ("Scored", f"{numbers.count(figures.counts['token'])} tokens in "
                   f"{numbers.count(figures.facts['strides'])} strides"),
    ]  # fmt: skip


def _plain(value: object) -> str:
    """A configuration value for reading: paths by their last part, lists joined."""
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    text = str(value)
    return text.rstrip("/").rsplit("/", 1)[-1] if "/" in text else text
