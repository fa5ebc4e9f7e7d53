"""The job file: every section's dataclass nested, read from TOML plus `--set`. Imports no torch.

The sections themselves live beside what they configure; this module composes, checks and writes
them back, and says which of their keys make a run another run.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from ralm_engine.errors import InputError
from ralm_engine.lm.config import BatchConfig, ModelConfig
from ralm_engine.ralm.config import RankConfig, WindowConfig
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.text.passages import PassagesConfig
from ralm_engine.text.streams import InputConfig
from ralm_engine.toml_values import accepts_text, convert, did_you_mean, toml_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Where the run goes and how it is executed.

    Attributes:
        out: run directory, local or a pyarrow filesystem URI.
        executor: `ray`, or `inline` for the same functions in this process.
        shard_strides: strides per committed shard; what a crash can lose at most.
        seed: of the random ranker and of the bootstrap.
        deterministic: bit-identical tables whatever the batch size and the number of workers.
        workers: scoring workers; 0 is one per GPU, or one on a CPU.
        retrieval_workers: retrieval workers.
        max_nonfinite_ratio: share of NaN or infinite token NLLs above which the run fails.
        report: whether `score` also writes report.html.
    """

    out: str = "run/"
    executor: Literal["ray", "inline"] = "ray"
    shard_strides: int = 256
    seed: int = 0
    deterministic: bool = False
    workers: int = 0
    retrieval_workers: int = 1
    max_nonfinite_ratio: float = 0.001
    report: bool = True

    def __post_init__(self) -> None:
        if not self.out:
            raise InputError("[run] out is empty", hint="name the directory to write")
        for name, low in (
            ("shard_strides", 1),
            ("seed", 0),
            ("workers", 0),
            ("retrieval_workers", 1),
        ):
            if getattr(self, name) < low:
                raise InputError(f"[run] {name} = {getattr(self, name)} must be at least {low}")
        if not 0 <= self.max_nonfinite_ratio <= 1:
            raise InputError(
                f"[run] max_nonfinite_ratio = {self.max_nonfinite_ratio} must lie between 0 and 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A whole job file, paths absolute, defaults filled in."""

    input: InputConfig
    model: ModelConfig
    passages: PassagesConfig
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    window: WindowConfig = field(default_factory=WindowConfig)
    rank: RankConfig = field(default_factory=RankConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    run: RunConfig = field(default_factory=RunConfig)


SECTIONS: dict[str, type] = get_type_hints(JobConfig)

_FILE_KEYS = {
    "input": ("path",),
    "passages": ("path", "exclude_titles", "exclude_ids", "store"),
    "retrieval": ("index",),
    "run": ("out",),
}
"""Keys that name files: relative ones resolve against the job file's directory."""

_LATER: dict[str, dict[str, Any]] = {"rank": {"model": "", "context": 0}}
"""Keys of the job-file contract that only take their default until the engine supports them."""

_LATER_CHOICES: dict[str, tuple[str, ...]] = {
    "[retrieval] engine": ("dense",),
    "[rank] layout": ("context_first", "parallel"),
}

_EXECUTION_KEYS = {
    "passages": ("store",),
    "retrieval": ("index", "threads"),
    "model": ("device", "attention"),
    "batch": ("max_tokens",),
    "run": ("out", "executor", "workers", "retrieval_workers", "max_nonfinite_ratio", "report"),
}
"""Keys that may differ when a run is resumed: results agree within the engine's tolerance whatever
they are (bit for bit in deterministic mode)."""


def load_job(path: str | Path, *, overrides: Sequence[str] = ()) -> JobConfig:
    """Reads a job file.

    Args:
        path: TOML file. Relative paths in it resolve against its directory.
        overrides: `section.key=value` strings, which win over the file. The value is TOML; what is
            no TOML value is taken as a bare string. Relative paths resolve as in the file.

    Raises:
        InputError: unreadable file, syntax, unknown or missing key, wrong type or value.
    """
    job = Path(path)
    return job_from_table(_read_toml(job), base=job.parent, source=job.name, overrides=overrides)


def job_from_table(
    table: Mapping[str, Mapping[str, Any]],
    *,
    base: Path,
    source: str,
    overrides: Sequence[str] = (),
) -> JobConfig:
    """Builds the configuration from a parsed job file.

    Args:
        table: section name to keys.
        base: directory that relative paths resolve against.
        source: what errors call the file.
        overrides: as in `load_job`.
    """
    table = dict(table)
    try:
        for override in overrides:
            _apply(table, override)
        _check_sections(table)
        return JobConfig(
            **{
                name: _section(name, cls, table.get(name), base=base)
                for name, cls in SECTIONS.items()
            }
        )
    except InputError as error:
        raise InputError(f"{source}: {error.message}", hint=error.hint) from None


def to_toml(cfg: JobConfig) -> str:
    """The job file that loads as exactly this configuration."""
    blocks = []
    for name in SECTIONS:
        section = getattr(cfg, name)
        lines = [
            f"{item.name} = {toml_value(getattr(section, item.name))}" for item in fields(section)
        ]
        blocks.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def identity(cfg: JobConfig) -> dict[str, dict[str, Any]]:
    """Everything in the configuration that changes numbers, by section and key.

    Left out are places (run directory, index, passage store) and pure execution: executor, workers,
    threads, device and attention backend, and `[batch] max_tokens`, whose effect stays within the
    engine's tolerance. Files stand by name, without their folder, so that a job directory can be
    moved; the caller adds hashes of what is in them.
    """
    named: dict[str, dict[str, Any]] = {}
    for name in SECTIONS:
        section = getattr(cfg, name)
        named[name] = {
            item.name: getattr(section, item.name)
            for item in fields(section)
            if item.name not in _EXECUTION_KEYS.get(name, ())
        }
        for key in _FILE_KEYS.get(name, ()):
            if key in named[name]:
                named[name][key] = _without_folder(named[name][key])
    named["model"]["name"] = _without_folder(named["model"]["name"])
    return named


def config_hash(cfg: JobConfig) -> str:
    """Hex sha256 over `identity`, stable across machines and runs."""
    text = json.dumps(identity(cfg), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_toml(job: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(job.read_bytes().decode())
    except FileNotFoundError:
        raise InputError(f"{job}: no such job file") from None
    except OSError as error:
        raise InputError(f"{job}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{job}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{job.name}: not valid TOML: {error}") from error


def _apply(table: dict[str, Any], override: str) -> None:
    """Writes one `section.key=value` into a parsed job file."""
    target, equals, text = override.partition("=")
    section, dot, key = target.strip().partition(".")
    if not (equals and dot and section and key):
        raise InputError(
            f'--set "{override}" is not section.key=value', hint="for example --set retrieval.k=4"
        )
    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    # More than one key means that the value held a line break and TOML of its own.
    value = parsed["value"] if set(parsed) == {"value"} else text.strip()
    hint = get_type_hints(SECTIONS[section]).get(key) if section in SECTIONS else None
    bare = accepts_text(hint) and not isinstance(value, (str, list))
    keys = table.get(section, {})
    if isinstance(keys, Mapping):
        table[section] = {**keys, key: text.strip() if bare else value}


def _check_sections(table: Mapping[str, Any]) -> None:
    for section, keys in table.items():
        if section not in SECTIONS:
            raise InputError(f"unknown section [{section}]", hint=did_you_mean(section, SECTIONS))
        if not isinstance(keys, Mapping):
            raise InputError(
                f'"{section}" is not a section', hint=f"write [{section}] above its keys"
            )


def _section(name: str, cls: type, table: Mapping[str, Any] | None, *, base: Path) -> Any:
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in (table or {}).items():
        where = f"[{name}] {key}"
        if key in hints:
            later = _LATER_CHOICES.get(where, ())
            values[key] = convert(value, hints[key], where=where, later=later)
        else:
            _refuse_unless_default(name, key, value)
    for item in fields(cls):
        if item.name not in values:
            _require_default(name, item, given=table is not None)
    for key, value in _file_values(name, cls, values):
        values[key] = _resolve(value, base)
    if name == "model":
        values["name"] = _resolve_model(values["name"], base)
    return cls(**values)


def _refuse_unless_default(section: str, key: str, value: Any) -> None:
    """Unknown keys are errors; announced ones only where they ask for something."""
    announced = _LATER.get(section, {})
    if key not in announced:
        raise InputError(f'[{section}] unknown key "{key}"', hint=_meant_key(section, key))
    if value != announced[key]:
        raise InputError(
            f"[{section}] {key} = {toml_value(value)} is not supported by this version",
            hint=f"leave it at {toml_value(announced[key])}",
        )


def _require_default(section: str, item: Field[Any], *, given: bool) -> None:
    if item.default is MISSING and item.default_factory is MISSING:
        lacks = f'[{section}] lacks the key "{item.name}"' if given else f"no section [{section}]"
        raise InputError(lacks, hint=f'add {item.name} = "..." under [{section}]')


def _file_values(name: str, cls: type, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    defaults = {item.name: item.default for item in fields(cls)}
    for key in _FILE_KEYS.get(name, ()):
        value = values.get(key, defaults.get(key))
        if value and value is not MISSING:
            yield key, value


def _resolve(value: Any, base: Path) -> Any:
    """Absolute path of a file value; URIs and hub names stay as they are."""
    if isinstance(value, tuple):
        return tuple(_resolve(item, base) for item in value)
    if "://" in value or value.startswith("hf:"):
        return value
    return os.path.abspath(base / Path(value).expanduser())  # noqa: PTH100  keeps symbolic links


def _resolve_model(name: str, base: Path) -> str:
    """A model name that is a file or folder beside the job file becomes absolute."""
    local = _resolve(name, base) if name else name
    looks_local = name.startswith((".", "/", "~")) or name.endswith((".gguf", ".json"))
    return local if looks_local or (name and Path(local).exists()) else name


def _meant_key(section: str, key: str) -> str:
    """The key's own section where it stands in the wrong one, else the nearest name."""
    homes = [name for name, cls in SECTIONS.items() if key in get_type_hints(cls)]
    if homes:
        return f"did you mean [{homes[0]}] {key}?"
    return did_you_mean(key, get_type_hints(SECTIONS[section]))


def _without_folder(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_without_folder(item) for item in value)
    is_path = value.startswith("/") and "://" not in value
    return Path(value).name if is_path else value
