"""Data sets named `hf:name/config:split`, read through the optional `datasets` package."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ralm_engine.errors import InputError, MissingDependencyError
from ralm_engine.text.formats import Record, record_of

HUB_PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<path>[^:]+):(?P<split>[^:/]+)")


def parse_hub_name(name: str) -> tuple[str, str | None, str]:
    """(data set, configuration or None, split) of `hf:name/config:split`.

    A data set below an owner is `hf:owner/name/config:split`; leave the configuration empty
    (`hf:owner/name/:split`) where it has only one.

    Raises:
        InputError: the name has another shape.
    """
    match = _NAME.fullmatch(name)
    parts = match["path"].split("/") if match else []
    if match is None or len(parts) not in (1, 2, 3) or not all(parts[:-1]) or not parts[0]:
        raise InputError(f'"{name}" is no data set name', hint="write hf:name/config:split")
    if len(parts) == 1:
        return parts[0], None, match["split"]
    return "/".join(parts[:-1]), parts[-1] or None, match["split"]


def hub_stem(name: str) -> str:
    """What documents of this data set are named after."""
    dataset, _, split = parse_hub_name(name)
    return f"{dataset.rsplit('/', 1)[-1]}-{split}"


def read_hub_records(name: str) -> Iterator[Record]:
    """Rows of the data set with a column text (or contents); title and id optional.

    Raises:
        InputError: no such data set, configuration, split or column.
        MissingDependencyError: the `datasets` package is not installed.
    """
    dataset, config, split = parse_hub_name(name)
    for row, value in enumerate(_load(name, dataset, config, split)):
        yield record_of(value, f"{name}, row {row}")


def _load(name: str, dataset: str, config: str | None, split: str) -> Iterator[Mapping[str, Any]]:
    try:
        datasets = importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{name} needs the package datasets", hint='pip install "ralm-engine[hub]"'
        ) from error
    try:
        return iter(datasets.load_dataset(dataset, config, split=split))
    except (OSError, ValueError) as error:
        first = str(error).split("\n", 1)[0]
        raise InputError(f"{name} cannot be loaded: {first}") from error
