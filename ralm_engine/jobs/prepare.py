"""Job file -> everything a run stands on: text, passages, index, shards, run directory."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import platform
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PretrainedConfig

import ralm_engine
from ralm_engine.config import JobConfig, config_hash, identity, to_toml
from ralm_engine.errors import InputError
from ralm_engine.jobs.index import ensure_index
from ralm_engine.jobs.progress import StageSink, of_stage
from ralm_engine.jobs.revision import code_revision
from ralm_engine.jobs.worker import WorkerSpec
from ralm_engine.lm.models import (
    bos_token,
    load_config,
    load_tokenizer,
    resolved_dtype,
    weights_hash,
)
from ralm_engine.lm.scorer import check_length
from ralm_engine.ralm.shards import Shard, cut_shards
from ralm_engine.ralm.windows import Windows
from ralm_engine.retrieval.filters import exclude_sources, listed_exclusion
from ralm_engine.retrieval.protocol import PassageMask
from ralm_engine.store.atomic import temporary_name
from ralm_engine.store.claim import claim_run
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.text.passages import PassageStore
from ralm_engine.text.streams import StreamStore, read_streams, write_streams
from ralm_engine.text.tokenizer import TextTokenizer

log = logging.getLogger(__name__)

STREAMS_FILE = "streams.arrow"
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "ray", "triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A job's text, passages and cuts, opened; nothing of the run directory.

    Attributes:
        spec: what the workers get.
        streams, passages: the opened files.
        shards: all shards of the job.
        config: the model's configuration.
        index_hash: of the index's header.
    """

    spec: WorkerSpec
    streams: StreamStore
    passages: PassageStore
    shards: list[Shard]
    config: PretrainedConfig
    index_hash: str

    def moved(self, streams_file: Path) -> Inputs:
        """The same inputs, after the stream file got its final name."""
        spec = dataclasses.replace(self.spec, streams_file=streams_file)
        return dataclasses.replace(self, spec=spec, streams=StreamStore.open(streams_file))


def prepare_inputs(
    cfg: JobConfig, *, streams_file: Path, progress: StageSink | None = None
) -> Inputs:
    """Loads tokenizer and configuration, tokenises the text, opens or builds passages and index.

    Args:
        cfg: the job.
        streams_file: where the tokenised text is written.
        progress: told during long steps.

    Raises:
        InputError: anything wrong with the job's files, found before any scoring.
    """
    _check_deterministic(cfg)
    config = load_config(cfg.model)
    check_length(config.get_text_config(), cfg.window.max_length)
    bos = bos_token(config) if cfg.window.bos == "model" else None
    windows = _windows(cfg, num_bos=0 if bos is None else 1)
    backend: Tokenizer = load_tokenizer(cfg.model)
    streams = write_streams(
        read_streams(cfg.input),
        TextTokenizer(backend),
        streams_file,
        limit_tokens=cfg.input.limit_tokens,
        progress=of_stage(progress, "tokenising"),
    )
    check_tokenizer(config, streams)
    passages, index_hash = ensure_index(cfg.passages, cfg.retrieval, progress=progress)
    spec = WorkerSpec(
        cfg=cfg,
        tokenizer_json=backend.to_str(),
        streams_file=streams.path,
        passages_file=passages.path,
        windows=windows,
        bos=bos,
        excluded=_listed(cfg, passages),
        excluded_own=_own(cfg, passages, streams),
    )
    num_tokens = streams.num_tokens.tolist()
    return Inputs(
        spec=spec,
        streams=streams,
        passages=passages,
        shards=cut_shards(num_tokens, windows, shard_strides=cfg.run.shard_strides),
        config=config,
        index_hash=index_hash,
    )


def _windows(cfg: JobConfig, *, num_bos: int) -> Windows:
    return Windows(
        cfg=cfg.window, stride=cfg.retrieval.stride, lookback=cfg.rank.lookback, num_bos=num_bos
    )


def _check_deterministic(cfg: JobConfig) -> None:
    if cfg.run.deterministic and cfg.window.context_slack:
        raise InputError(
            f"[run] deterministic and [window] context_slack = {cfg.window.context_slack} exclude "
            "each other: what shares a row depends on where shards begin",
            hint="set context_slack = 0 or deterministic = false",
        )


def check_tokenizer(config: PretrainedConfig, streams: StreamStore) -> None:
    """Refuses a tokenizer that is not the model's, before a model is loaded.

    Raises:
        InputError: it gives ids the model has no embedding for, or is the nearly empty one that a
            model directory without tokenizer files yields.
    """
    size = config.get_text_config().vocab_size
    distinct, highest = 0, 0
    for number in range(min(streams.num_streams, 100)):
        ids = np.unique(streams.token_ids(number))
        distinct, highest = max(distinct, ids.size), max(highest, int(ids.max(initial=0)))
    tokens = int(streams.num_tokens.max(initial=0))
    if highest >= size or (tokens > 64 and distinct < 3):
        raise InputError(
            f"the tokenizer does not fit the model: it made {distinct} distinct ids up to {highest}"
            f" of {tokens} tokens, the model knows {size}",
            hint="put the model's own tokenizer.json beside it",
        )


def _listed(cfg: JobConfig, passages: PassageStore) -> PassageMask | None:
    """What the exclusion lists name; names that match nothing are reported."""
    listed = listed_exclusion(cfg.passages, passages)
    if listed is None:
        return None
    if listed.unknown:
        log.warning(
            "%d of %d listed exclusions match no passage, for example %r",
            len(listed.unknown),
            listed.listed,
            listed.unknown[0],
        )
    return listed.mask


def _own(cfg: JobConfig, passages: PassageStore, streams: StreamStore) -> tuple[PassageMask, ...]:
    """The passages of each stream's own document, where the job excludes them."""
    if not cfg.passages.exclude_source:
        return ()
    sources = [streams.sources(number) for number in range(streams.num_streams)]
    return exclude_sources(passages, sources)


def _identity(cfg: JobConfig, inputs: Inputs) -> dict[str, Any]:
    """The configuration's identity, with `dtype = auto` replaced by what it means here."""
    found = identity(cfg)
    found["model"]["dtype"] = str(resolved_dtype(cfg.model, inputs.config)).removeprefix("torch.")
    return found


def _masks_hash(masks: tuple[PassageMask | None, ...]) -> str:
    """sha256 over the excluded rows of every stream."""
    digest = hashlib.sha256()
    for mask in masks:
        digest.update(b"-" if mask is None else mask.rows.tobytes() + b"|")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A locked run directory and what it stands on."""

    run: RunDirectory
    inputs: Inputs


def prepare_run(cfg: JobConfig, *, progress: StageSink | None = None) -> PreparedRun:
    """Takes the run directory, prepares the inputs, and creates or resumes the run.

    Raises:
        InputError: bad inputs, or the directory holds another job or is in use.
        RunError: the directory cannot be written.
    """
    claim = claim_run(cfg.run.out)
    folder = claim.location.local or Path(tempfile.mkdtemp(prefix="ralm-"))
    aside = folder / temporary_name(STREAMS_FILE)
    try:
        inputs = prepare_inputs(cfg, streams_file=aside, progress=progress)
        hashes = {
            "model": weights_hash(cfg.model),
            "tokenizer": inputs.streams.tokenizer_fingerprint,
            "passages": inputs.passages.content_hash,
            "index": inputs.index_hash,
            "input": inputs.streams.content_hash,
            "excluded": _masks_hash((inputs.spec.excluded, *inputs.spec.excluded_own)),
        }
        run = RunDirectory.create_or_resume(
            claim,
            identity={**_identity(cfg, inputs), "hash": hashes},
            manifest=_manifest(cfg, inputs, hashes),
            config_toml=to_toml(cfg),
        )
    except BaseException:
        aside.unlink(missing_ok=True)
        claim.release()
        raise
    # Only now: a refused job must not replace the text of the run that lies there.
    streams_file = aside.replace(folder / STREAMS_FILE)
    if claim.location.local is None:
        (run.location / STREAMS_FILE).write(streams_file.read_bytes())
    return PreparedRun(run=run, inputs=inputs.moved(streams_file))


def _manifest(cfg: JobConfig, inputs: Inputs, hashes: dict[str, str]) -> dict[str, Any]:
    first_window = inputs.streams.token_ids(0)[: inputs.spec.windows.capacity].tolist()
    return {
        "num_shards": len(inputs.shards),
        "num_strides": sum(shard.num_strides for shard in inputs.shards),
        "engine_version": ralm_engine.__version__,
        "config_hash": config_hash(cfg),
        "code_revision": code_revision(),
        "seed": cfg.run.seed,
        "hashes": hashes,
        "model_hash": hashes["model"],
        "tokenizer_hash": hashes["tokenizer"],
        "first_window": ([] if inputs.spec.bos is None else [inputs.spec.bos]) + first_window,
        "passages": {
            "path": str(inputs.passages.path),
            "num_passages": inputs.passages.num_passages,
            "num_duplicates": int((inputs.passages.duplicate_of >= 0).sum()),
        },
        "session": {
            "packages": {name: _version(name) for name in _PACKAGES},
            "hardware": hardware(),
        },
    }


def hardware() -> dict[str, Any]:
    """The machine: processor, cores, memory, GPUs."""
    import torch

    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": pages * size,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
