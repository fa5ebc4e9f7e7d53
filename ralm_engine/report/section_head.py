"""The top of the page: what was run, and what came out, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralm_engine.report import finding, markup, numbers
from ralm_engine.report.embed import html_text
from ralm_engine.report.model import RunFigures

Manifest = Mapping[str, Any]


def head_section(manifest: Manifest, figures: RunFigures, *, streams: list[str]) -> str:
    """Finding, cautions and the key facts of the run."""
    sentences = " ".join(finding.details(figures))
    parts = [f"<h1>{html_text(finding.headline(figures))}</h1>"]
    if sentences:
        parts.append(f'<p class="lede">{html_text(sentences)}</p>')
    parts += [f'<p class="caution">{html_text(text)}</p>' for text in _cautions(figures)]
    parts.append(markup.facts(_facts(manifest, figures, streams), kind="facts"))
    return "".join(parts)


def setting(manifest: Manifest, section: str, key: str) -> Any:
    """One value of the resolved configuration; None where the manifest has none."""
    config = manifest.get("config")
    table = config.get(section) if isinstance(config, Mapping) else None
    return table.get(key) if isinstance(table, Mapping) else None


def title(manifest: Manifest) -> str:
    """The document title."""
    return f"{_model(manifest)}: ralm-engine report"


def _model(manifest: Manifest) -> str:
    return str(setting(manifest, "model", "name") or "unknown model")


def _cautions(figures: RunFigures) -> list[str]:
    found = []
    done, total = figures.shards_done, figures.shards_total
    if total is not None and done < total:
        found.append(
            f"This run is not finished: {numbers.count(done)} of {numbers.count(total)} shards are "
            "scored. Every figure below covers these alone."
        )
    broken = figures.facts.get("nonfinite_tokens", 0)
    if broken:
        found.append(
            f"{numbers.count(broken)} tokens had a NaN or an infinity and are left out of all sums."
        )
    return found


def _facts(manifest: Manifest, figures: RunFigures, streams: list[str]) -> list[tuple[str, str]]:
    def of(section: str, key: str) -> str:
        value = setting(manifest, section, key)
        return numbers.MISSING if value is None else _plain(value)

    named = ", ".join(streams[:2]) + (f" and {len(streams) - 2} more" if len(streams) > 2 else "")
    slack = setting(manifest, "window", "context_slack")
    window = f"{of('window', 'max_length')} tokens, passage at most "
    window += of("window", "max_passage_length")
    if slack:
        window += f", context slack {slack}"
    return [
        ("Streams", named or numbers.MISSING),
        ("Model", f"{_model(manifest)}, {of('model', 'dtype')}"),
        ("Passages", of("passages", "path")),
        ("Retrieval", f"{of('retrieval', 'engine')}, k = {of('retrieval', 'k')}"),
        ("Stride and query", f"{of('retrieval', 'stride')} and "
                             f"{of('retrieval', 'query_length')} tokens"),
        ("Window", window),
        ("Warm-up", of("window", "warmup")),
        ("Scored", f"{numbers.count(figures.counts.get('tokens'))} tokens in "
                   f"{numbers.count(figures.facts.get('strides'))} strides"),
    ]  # fmt: skip


def _plain(value: object) -> str:
    """A configuration value for reading: paths by their last part, lists joined."""
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    text = str(value)
    return text.rstrip("/").rsplit("/", 1)[-1] if "/" in text else text
