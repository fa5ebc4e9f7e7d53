"""The job file: what loads, what is refused and with which words, what makes another run."""

from __future__ import annotations

import tomllib
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralm_engine.config import (
    SECTIONS,
    JobConfig,
    RunConfig,
    config_hash,
    identity,
    load_job,
    to_toml,
)
from ralm_engine.errors import InputError
from ralm_engine.retrieval.config import RetrievalConfig
from ralm_engine.toml_values import toml_value

MINIMAL = """\
[input]
path = "stream.txt"
[model]
name = "smollm2"
[passages]
path = "passages.jsonl.gz"
"""

CONTRACT = """\
[input]
path = "stream.txt"
streams = "concat"

[model]
name = "smollm2"
dtype = "float32"
device = "auto"
attention = "auto"

[passages]
path = "passages.jsonl.gz"
exclude_titles = "titles.txt"

[retrieval]
engine = "native"
index = "index/"
stride = 4
query_length = 32
k = 16
k1 = 0.9
b = 0.4

[window]
max_length = 1024
max_passage_length = 256
warmup = "reference"
bos = "none"
context_slack = 0

[rank]
lookback = 16
model = ""
layout = "document_first"
context = 0

[batch]
max_tokens = 16384

[run]
out = "run/"
executor = "ray"
shard_strides = 256
seed = 0
deterministic = false
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_job(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write_job


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load_job(path, overrides=overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_contract_file_loads(write):
    """Fails when a key of the published job file is renamed, removed or retyped."""
    cfg = load_job(write(CONTRACT))
    written = tomllib.loads(CONTRACT)
    assert cfg.retrieval.k == 16
    assert cfg.retrieval.k1 == pytest.approx(0.9)
    assert cfg.window.warmup == "reference"
    assert {name: set(keys) - {"model", "context"} for name, keys in written.items()}.items() <= {
        name: {item.name for item in fields(cls)} & set(written[name]) - {"model", "context"}
        for name, cls in SECTIONS.items()
    }.items()


def test_defaults_are_those_of_the_contract(write):
    """Fails when leaving a key out means something else than the published default."""
    short, full = load_job(write(MINIMAL)), load_job(write(CONTRACT))
    excluded = replace(full.passages, exclude_titles="")
    assert short == replace(full, passages=excluded)


def test_relative_paths_resolve_against_the_job_file(write, tmp_path):
    """Fails when a job only runs from its own directory."""
    cfg = load_job(write(CONTRACT))
    assert cfg.input.paths == (str(tmp_path / "stream.txt"),)
    assert cfg.passages.exclude_titles == str(tmp_path / "titles.txt")
    assert cfg.retrieval.index == str(tmp_path / "index")
    assert cfg.run.out == str(tmp_path / "run")


def test_hub_names_and_uris_are_no_paths(write):
    """Fails when hf:, s3:// or a hub model gets a directory put before it."""
    text = MINIMAL.replace('"stream.txt"', '["hf:wikitext/raw:test", "s3://b/c.txt"]')
    cfg = load_job(write(text.replace("smollm2", "org/model")), overrides=["run.out=gs://b/run"])
    assert cfg.input.paths == ("hf:wikitext/raw:test", "s3://b/c.txt")
    assert cfg.model.name == "org/model"
    assert cfg.run.out == "gs://b/run"


def test_model_beside_the_job_file_is_a_path(write, tmp_path):
    """Fails when a local model directory is taken for a hub name."""
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    text = MINIMAL.replace("smollm2", "models/tiny")
    assert load_job(write(text)).model.name == str(tmp_path / "models" / "tiny")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MINIMAL + "[window]\nmax_lenght = 5\n",
            'job.toml: [window] unknown key "max_lenght"; did you mean "max_length"?',
        ),
        (
            MINIMAL + "[window]\nstride = 5\n",
            'job.toml: [window] unknown key "stride"; did you mean [retrieval] stride?',
        ),
        (MINIMAL + "[wndow]\n", 'job.toml: unknown section [wndow]; did you mean "window"?'),
        ("stride = 4\n" + MINIMAL, "job.toml: unknown section [stride]"),
        (
            MINIMAL + "[retrieval]\nk = 4.0\n",
            "job.toml: [retrieval] k = 4.0 is not a whole number",
        ),
        (
            MINIMAL + '[retrieval]\nk = "4"\n',
            'job.toml: [retrieval] k = "4" is not a whole number',
        ),
        (MINIMAL + "[retrieval]\nk = true\n", "job.toml: [retrieval] k = true is not a whole"),
        (MINIMAL + '[retrieval]\nb = "x"\n', 'job.toml: [retrieval] b = "x" is not a number'),
        (MINIMAL + "[retrieval]\nk = 0\n", "job.toml: [retrieval] k = 0 must be at least 1"),
        (
            MINIMAL + '[window]\nwarmup = "refrence"\n',
            'job.toml: [window] warmup = "refrence" is not one of "reference", "none"; '
            'did you mean "reference"?',
        ),
        (
            MINIMAL + "[run]\ndeterministic = 1\n",
            "job.toml: [run] deterministic = 1 is not true or false",
        ),
        (
            MINIMAL.replace('name = "smollm2"', ""),
            'job.toml: [model] lacks the key "name"; add name = "..." under [model]',
        ),
        (
            MINIMAL.replace('[model]\nname = "smollm2"', ""),
            'job.toml: no section [model]; add name = "..." under [model]',
        ),
        (
            MINIMAL.replace('"stream.txt"', '["a.txt", 3]'),
            'job.toml: [input] path = ["a.txt", 3] is not a string or a list of strings',
        ),
        (MINIMAL + "[run\n", "job.toml: not valid TOML: Expected ']' at the end of a table "),
    ],
)
def test_refusals_say_what_where_and_what_to_do(write, text, message):
    """Fails when an error of the job file loses its key, its value or its advice."""
    assert refusal(write(text)).startswith(message)


def test_syntax_errors_name_the_line(write):
    """Fails when the reader has to look for the slip."""
    assert "line 7" in refusal(write(MINIMAL + "oops\n"))


@pytest.mark.parametrize(
    "override",
    ['rank.model="gpt2"', "rank.context=128", "retrieval.engine=dense", "rank.layout=parallel"],
)
def test_announced_values_are_refused_not_ignored(write, override):
    """Fails when a key of the contract that does nothing yet is accepted in silence."""
    assert "is not supported by this version" in refusal(write(MINIMAL), override)


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("retrieval.k=4", "retrieval", "k", 4),
        ("retrieval.b = 1", "retrieval", "b", 1.0),
        ("window.warmup=none", "window", "warmup", "none"),
        ('window.warmup="none"', "window", "warmup", "none"),
        ("run.deterministic=true", "run", "deterministic", True),
        ("model.name=2024", "model", "name", "2024"),
    ],
)
def test_overrides(write, override, section, key, value):
    """Fails when --set parses a value otherwise than the file would, or needs quotes."""
    cfg = load_job(write(MINIMAL), overrides=[override])
    got = getattr(getattr(cfg, section), key)
    assert (got, type(got)) == (value, type(value))


def test_overrides_resolve_paths_and_take_lists(write, tmp_path):
    """Fails when a path on the command line means another file than in the job file."""
    overrides = ["run.out=other", 'input.path=["a.txt", "b.txt"]']
    cfg = load_job(write(MINIMAL), overrides=overrides)
    assert cfg.run.out == str(tmp_path / "other")
    assert cfg.input.paths == (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))


@pytest.mark.parametrize("override", ["k=4", "retrieval.k", "=4", "retrieval.=4", ".k=4", ""])
def test_malformed_overrides_are_refused(write, override):
    """Fails when a mistyped --set is dropped."""
    assert "is not section.key=value" in refusal(write(MINIMAL), override)


def test_an_override_cannot_smuggle_in_a_key(write):
    """Fails when a line break in a value is read as more TOML."""
    cfg = load_job(write(MINIMAL), overrides=["model.name=a\nseed = 3"])
    assert cfg.model.name == "a\nseed = 3"
    assert cfg.run.seed == 0


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, "no such job file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b'a = "\xff"'), "byte 5 is not UTF-8"),
    ],
)
def test_unreadable_files(tmp_path, prepare, message):
    """Fails when a file problem ends in a traceback."""
    path = tmp_path / "job.toml"
    prepare(path)
    assert message in refusal(path)


def test_written_configuration_loads_as_itself(write, tmp_path):
    """Fails when config.toml in a run directory would not repeat the run."""
    cfg = load_job(write(CONTRACT), overrides=['input.path=["a \\"b\\".txt", "c.txt"]'])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = elsewhere / "config.toml"
    copy.write_text(to_toml(cfg))
    assert load_job(copy) == cfg


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_survives_toml(text: str):
    """Fails on a character whose escape TOML does not read."""
    assert tomllib.loads(f"a = {toml_value(text)}") == {"a": text}


@given(st.floats())
def test_any_float_survives_toml(number: float):
    """Fails on a float whose spelling TOML does not read."""
    assert repr(tomllib.loads(f"a = {toml_value(number)}")["a"]) == repr(number)


def changed(cfg: JobConfig, section: str, **keys: object) -> JobConfig:
    return replace(cfg, **{section: replace(getattr(cfg, section), **keys)})


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("run", {"out": "/elsewhere"}),
        ("run", {"executor": "inline"}),
        ("run", {"workers": 2}),
        ("run", {"retrieval_workers": 2}),
        ("run", {"report": False}),
        ("retrieval", {"index": "/elsewhere/index"}),
        ("retrieval", {"threads": 2}),
        ("batch", {"max_tokens": 1024}),
        ("model", {"device": "cpu"}),
        ("input", {"path": "/elsewhere/stream.txt"}),
    ],
)
def test_execution_and_places_are_no_identity(write, section, keys):
    """Fails when moving a job or giving it more workers would refuse to resume it."""
    cfg = load_job(write(CONTRACT))
    assert config_hash(changed(cfg, section, **keys)) == config_hash(cfg)


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("retrieval", {"k": 8}),
        ("retrieval", {"stride": 8}),
        ("retrieval", {"engine": "lucene"}),
        ("window", {"context_slack": 60}),
        ("rank", {"lookback": 32}),
        ("model", {"dtype": "bfloat16"}),
        ("run", {"seed": 1}),
        ("run", {"shard_strides": 8}),
        ("run", {"deterministic": True}),
        ("input", {"path": "/elsewhere/other.txt"}),
        ("passages", {"exclude_titles": ""}),
        ("passages", {"split_words": 50}),
    ],
)
def test_what_changes_numbers_is_identity(write, section, keys):
    """Fails when a run could be resumed with a key that changes its tables."""
    cfg = load_job(write(CONTRACT))
    other = changed(cfg, section, **keys)
    assert config_hash(other) != config_hash(cfg)
    (key,) = keys
    assert identity(other)[section][key] != identity(cfg)[section][key]


def test_every_key_is_either_identity_or_execution(write):
    """Fails when a new key is in neither list: the resume check would not know it."""
    cfg = load_job(write(MINIMAL))
    execution = {
        f"{name}.{item.name}"
        for name, cls in SECTIONS.items()
        for item in fields(cls)
        if item.name not in identity(cfg)[name]
    }
    assert execution == {
        "passages.store",
        "retrieval.index",
        "retrieval.threads",
        "model.device",
        "model.attention",
        "batch.max_tokens",
        "run.out",
        "run.executor",
        "run.workers",
        "run.retrieval_workers",
        "run.max_nonfinite_ratio",
        "run.report",
    }


def test_hash_is_stable(write):
    """Fails when the same job hashes differently: old runs could not be resumed."""
    hashes = {config_hash(load_job(write(text))) for text in (MINIMAL, MINIMAL + "[run]\nseed = 0")}
    assert len(hashes) == 1


def test_frozen(write):
    """Fails when a configuration can be changed after it was checked."""
    cfg = load_job(write(MINIMAL))
    with pytest.raises(FrozenInstanceError):
        cfg.retrieval = RetrievalConfig()


@pytest.mark.parametrize(
    "keys",
    [
        {"out": ""},
        {"shard_strides": 0},
        {"seed": -1},
        {"workers": -1},
        {"retrieval_workers": 0},
        {"max_nonfinite_ratio": 1.5},
        {"max_nonfinite_ratio": float("nan")},
    ],
)
def test_run_section_checks_its_values(keys):
    """Fails when a value that makes no sense gets as far as the run."""
    (key,) = keys
    with pytest.raises(InputError, match=rf"\[run\] {key}"):
        RunConfig(**keys)
