"""manifest.json: what a run is, what it was made from, and which shards it holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from ralm_engine.errors import InputError
from ralm_engine.schema import SCHEMA_VERSION
from ralm_engine.store.hashing import hash_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralm_engine.store.location import Location

MANIFEST_NAME = "manifest.json"
FORMAT = "ralm-engine run"
RUNNING = "running"
COMPLETE = "complete"
INCOMPLETE = "incomplete"

Manifest = dict[str, object]


def as_json(value: Mapping[str, object]) -> dict[str, object]:
    """The value as JSON gives it back: tuples as lists, keys as strings."""
    plain: dict[str, object] = json.loads(json.dumps(value, allow_nan=False))
    return plain


def new_manifest(*, identity: Mapping[str, object], extra: Mapping[str, object]) -> Manifest:
    """A manifest of a run that starts now; `extra` never replaces the store's own entries."""
    own: Manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "status": RUNNING,
        "identity": as_json(identity),
        "identity_hash": hash_value(as_json(identity)),
        "sessions": [],
        "shards": [],
    }
    reserved = {*own, "session"}
    return {**own, **{key: value for key, value in as_json(extra).items() if key not in reserved}}


def read_manifest(run: Location) -> Manifest:
    """The manifest of a run directory.

    Raises:
        InputError: there is none, it is damaged, of another program, or of a version that this
            engine does not read.
    """
    location = run / MANIFEST_NAME
    try:
        data = location.read().to_pybytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{run.label} is no run directory: it has no {MANIFEST_NAME}",
            hint="give the [run] out of a job",
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {location.label}: {error}") from error
    try:
        manifest = json.loads(data)
    except ValueError as error:
        raise InputError(f"{location.label} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f'{location.label} is not of a run: its format is not "{FORMAT}"')
    version = manifest.get("schema_version")
    if version not in (SCHEMA_VERSION, SCHEMA_VERSION - 1):
        raise InputError(
            f"{location.label} has schema version {version}, this engine reads "
            f"{SCHEMA_VERSION - 1} and {SCHEMA_VERSION}"
        )
    return manifest


def write_manifest(run: Location, manifest: Manifest) -> None:
    """Replaces the manifest at once.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    shards = manifest["shards"]
    assert isinstance(shards, list)
    head = {key: value for key, value in manifest.items() if key != "shards"}
    text = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    # One line a shard: indented like the rest, 100,000 shards would fill 2 million lines.
    lines = ",\n".join("  " + json.dumps(shard) for shard in shards)
    (run / MANIFEST_NAME).write(f'{text},\n "shards": [\n{lines}\n ]\n}}\n'.encode())


def check_same_job(
    run: Location, manifest: Mapping[str, object], identity: Mapping[str, object]
) -> None:
    """Refuses to go on with a run that was made from something else.

    Raises:
        InputError: names each key whose value differs, with the old and the new value.
    """
    stored = manifest["identity"]
    assert isinstance(stored, dict)
    changes = list(changed_keys(stored, as_json(identity)))
    if manifest["schema_version"] != SCHEMA_VERSION:
        changes.append(f"schema_version ({manifest['schema_version']} -> {SCHEMA_VERSION})")
    if changes:
        raise InputError(
            f"{run.label} holds a run of another job; changed: {', '.join(changes)}",
            hint="set this back to go on with that run, or give another [run] out",
        )


def changed_keys(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    """Yields `section.key (old -> new)` for every leaf that differs."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for key in sorted(before.keys() | after.keys()):
        if key not in before:
            yield f"{key} (absent -> {json.dumps(after[key])})"
        elif key not in after:
            yield f"{key} ({json.dumps(before[key])} -> absent)"
        elif before[key] != after[key]:
            yield f"{key} ({json.dumps(before[key])} -> {json.dumps(after[key])})"


def _leaves(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def write_text(location: Location, text: str) -> None:
    """Writes a text file at once, as UTF-8.

    Raises:
        OSError: it cannot be written.
    """
    location.write(pa.py_buffer(text.encode()))
