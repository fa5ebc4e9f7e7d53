"""Provenance: everything needed to trust the figures or to repeat the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ralm_engine.report import markup, numbers
from ralm_engine.report.embed import html_text
from ralm_engine.report.model import RunFigures

_FACT_NAMES = {
    "strides": "Strides with a retrieval",
    "no_hits": "Strides without a hit",
    "candidates": "Candidates scored",
    "unusable": "Candidates that may not be chosen (not finite, or skipped)",
    "duplicates": "Candidates with the text of an earlier one of their stride",
    "nonfinite_baseline": "NaN or infinite NLLs without retrieval",
    "nonfinite_candidates": "NaN or infinite NLLs given a candidate",
    "empty_streams": "Streams without a token to score",
}
_SHOWN_IDS = 64
# Shown in a section of their own, or too long to read.
_ELSEWHERE = frozenset({"hashes", "plan", "shards", "identity", "sessions", "first_window"})


def provenance_section(
    manifest: Mapping[str, Any], figures: RunFigures, *, config_toml: str
) -> str:
    """Counted events, hashes, versions, hardware, token ids of the first window, configuration."""
    counted = [
        (_FACT_NAMES.get(key, f"Strides with {key}"), numbers.count(value))
        for key, value in figures.facts.items()
    ]
    done, total = figures.shards_done, figures.shards_total
    counted.append(("Shards", f"{done:,} of {total:,}" if total is not None else f"{done:,}"))
    parts = [markup.facts(counted, kind="kv")]
    for key, name in (("hashes", "Hashes (SHA-256)"), ("sessions", "Hardware and versions")):
        pairs = list(_leaves(manifest.get(key), ""))
        if pairs:
            parts.append(markup.details(name, markup.facts(pairs, kind="kv"), printed=True))
    parts.append(markup.details("Run", markup.facts(_rest(manifest), kind="kv"), printed=True))
    window = manifest.get("first_window")
    if isinstance(window, list) and window:
        parts.append(markup.details("Token ids of the first window", _ids(window)))
    if config_toml:
        body = f"<pre>{html_text(config_toml)}</pre>"
        parts.append(markup.details("Configuration (config.toml)", body, printed=True))
    return markup.section("provenance", "Provenance", *parts)


def _ids(ids: list[int]) -> str:
    shown = " ".join(map(str, ids[:_SHOWN_IDS]))
    more = f" ... ({numbers.count(len(ids))} in all)" if len(ids) > _SHOWN_IDS else ""
    about = "Compare with the tokenizer's output to see whether a BOS token was added, and where."
    return f"{markup.note(about)}<pre>{html_text(shown + more)}</pre>"


def _rest(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        pair
        for key, value in manifest.items()
        if key not in _ELSEWHERE and not _is_long(value)
        for pair in _leaves(value, key)
    ]


def _is_long(value: Any) -> bool:
    return isinstance(value, list | dict) and len(json.dumps(value)) > 2000


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{at}]")
    elif value is not None and not name.endswith(".token"):  # the lock's, of no use to a reader
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
