"""What a job will cost, from a sample of its strides: rows, tokens, FLOP, memory, time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ralm_engine.config import JobConfig
from ralm_engine.jobs.prepare import STREAMS_FILE, Inputs, prepare_inputs
from ralm_engine.jobs.progress import StageSink
from ralm_engine.lm.config import ModelConfig
from ralm_engine.lm.cost import CostModel, cost_of
from ralm_engine.lm.models import resolve_device
from ralm_engine.lm.packing import PackPlan, pack, pad
from ralm_engine.lm.scorer import token_budget
from ralm_engine.ralm.shards import Shard

SAMPLE_STRIDES = 1024
"""Strides that are retrieved and laid out; a job with no more than these is planned exactly."""

# Share of the measured matrix rate that whole forwards reached with SmolLM2-135M in float32 on two
# AVX2 cores (benchmarks/results, bench_scoring).
MODEL_EFFICIENCY = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cost of a whole job.

    Attributes:
        rows: LM rows asked for: one a candidate, one a stride without retrieval, one a warm-up.
        rows_forwarded: rows that go through the model; merged ones count once.
        strides, candidates: what is scored.
        tokens_asked: tokens of all rows if nothing were shared.
        tokens_forwarded: tokens that go through the model.
        batches: forward passes.
        share_saved: 1 - tokens_forwarded / tokens_asked.
        flop: floating-point operations.
        flop_per_second: assumed rate: matrix rate of this device, measured now, times efficiency.
        seconds: model time on one device.
        gpu_hours: the same in hours, 0 on a CPU.
        memory_bytes: peak memory of a scoring worker.
        sampled_strides: strides the figures were measured on; all of them: exact.
    """

    rows: int
    rows_forwarded: int
    strides: int
    candidates: int
    tokens_asked: int
    tokens_forwarded: int
    batches: int
    share_saved: float
    flop: float
    flop_per_second: float
    seconds: float
    gpu_hours: float
    memory_bytes: int
    sampled_strides: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def plan_job(cfg: JobConfig, *, stages: StageSink | None = None) -> Plan:
    """Plans a job; builds passages and index where they are absent, loads no weights.

    Args:
        cfg: the job.
        stages: told during long steps.

    Raises:
        InputError: anything wrong with the job's files.
    """
    with tempfile.TemporaryDirectory(prefix="ralm-plan-") as folder:
        streams_file = Path(folder) / STREAMS_FILE
        return plan_inputs(prepare_inputs(cfg, streams_file=streams_file, progress=stages))


def plan_inputs(inputs: Inputs) -> Plan:
    """Plans what was prepared: retrieves and lays out a sample, and scales it up."""
    strides = sum(shard.num_strides for shard in inputs.shards)
    return _scaled(inputs.spec.cfg, cost_of(inputs.config), _sample(inputs), strides=strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """What the sampled strides came to."""

    plans: list[PackPlan]
    rows: int
    tokens: int
    candidates: int
    strides: int
    scale: float

    def total(self, name: str) -> int:
        return sum(int(getattr(plan, name)) for plan in self.plans)


def _sample(inputs: Inputs) -> _Sample:
    cfg = inputs.spec.cfg
    shards = sample_shards(inputs.shards)
    retriever = inputs.spec.shard_retriever()
    packer = pad if cfg.model.attention == "padded" else pack
    plans, laid_out, candidates = [], [], 0
    for shard in shards:
        retrieved = retriever.retrieve(shard)
        laid_out.append(inputs.spec.lay_out(retrieved))
        plans.append(
            packer(
                laid_out[-1].requests,
                max_tokens=token_budget(cfg.batch.max_tokens, resolve_device(cfg.model)),
                one_row_per_batch=cfg.run.deterministic,
            )
        )
        candidates += sum(
            int(b.candidates.count_Q.sum()) for b in retrieved.blocks if b.candidates is not None
        )
    strides = sum(shard.num_strides for shard in shards)
    return _Sample(
        plans=plans,
        rows=sum(rows.rows for rows in laid_out),
        tokens=sum(rows.tokens for rows in laid_out),
        candidates=candidates,
        strides=strides,
        scale=_weight(inputs.shards) / max(1, _weight(shards)),
    )


def _weight(shards: Sequence[Shard]) -> int:
    """Strides, a stream that is all warm-up counting as one, as it does where shards are cut."""
    return sum(max(1, span.num_strides) for shard in shards for span in shard.spans)


def sample_shards(shards: Sequence[Shard]) -> list[Shard]:
    """All shards of a small job; else evenly spaced ones, about SAMPLE_STRIDES strides."""
    strides = _weight(shards)
    if strides <= SAMPLE_STRIDES:
        return list(shards)
    wanted = max(1, round(len(shards) * SAMPLE_STRIDES / strides))
    step = len(shards) / wanted
    return [shards[int(step * (i + 0.5))] for i in range(wanted)]


def _scaled(cfg: JobConfig, cost: CostModel, sample: _Sample, *, strides: int) -> Plan:
    scale = sample.scale

    def total(name: str) -> int:
        return round(scale * sample.total(name))

    asked, forwarded = round(scale * sample.tokens), total("tokens_forwarded")
    flop = cost.flop(tokens=forwarded, pairs=total("attended"), wants=total("wants"))
    device = resolve_device(cfg.model)
    rate = MODEL_EFFICIENCY * matrix_rate(cfg.model)
    largest = max((batch.num_tokens for plan in sample.plans for batch in plan.batches), default=0)
    return Plan(
        rows=round(scale * sample.rows),
        rows_forwarded=total("rows"),
        strides=strides,
        candidates=round(scale * sample.candidates),
        tokens_asked=asked,
        tokens_forwarded=forwarded,
        batches=round(scale * sum(len(plan.batches) for plan in sample.plans)),
        share_saved=1 - forwarded / asked if asked else 0.0,
        flop=flop,
        flop_per_second=rate,
        seconds=flop / rate,
        gpu_hours=flop / rate / 3600 if device.type == "cuda" else 0.0,
        memory_bytes=cost.memory_bytes(
            tokens=largest, bytes_per_value=2 if cfg.model.dtype in ("bfloat16", "float16") else 4
        ),
        sampled_strides=sample.strides,
    )


def matrix_rate(cfg: ModelConfig) -> float:
    """FLOP per second of a large matrix product on the job's device, in its dtype; under 1 s."""
    device = resolve_device(cfg)
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(cfg.dtype, torch.float32)
    rows, inner = (2048, 1024) if device.type == "cpu" else (8192, 8192)
    left = torch.ones(rows, inner, dtype=dtype, device=device)
    right = torch.ones(inner, inner, dtype=dtype, device=device)
    flop, best = 2.0 * rows * inner * inner, 0.0
    for _ in range(5):
        began = time.perf_counter()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize()  # sync: a timing needs the end of the product.
        best = max(best, flop / (time.perf_counter() - began))
    return best
