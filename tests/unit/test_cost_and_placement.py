"""Cost model by hand, sampling of shards, and what the Ray pools ask for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import transformers

from ralm_engine.errors import RunError
from ralm_engine.jobs.plan import SAMPLE_STRIDES, sample_shards
from ralm_engine.lm.cost import cost_of
from ralm_engine.ralm.shards import Shard, Span


def test_cost_of_a_small_llama_by_hand() -> None:
    """Fails when a projection is left out, counted twice, or grouped heads are counted in full."""
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    cost = cost_of(config)
    attention = 32 * 32 + 2 * 32 * 16 + 32 * 32
    mlp = 3 * 32 * 48
    assert cost.flop_per_token == 2 * 3 * (attention + mlp)
    assert cost.flop_per_pair == 3 * 4 * (8 + 8) * 2  # scores and sums, a multiply-add is 2
    assert cost.flop_per_want == 2 * 32 * 100


def test_cost_of_gpt2_counts_its_transposed_layers() -> None:
    """Fails when Conv1D, GPT-2's linear layer, is not counted."""
    config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4)
    assert cost_of(config).flop_per_token == 2 * 2 * (32 * 96 + 32 * 32 + 2 * 32 * 128)


def shard(part: int, strides: int) -> Shard:
    span = Span(stream=0, first_stride=0, num_strides=strides, warmup=False)
    return Shard(part=part, spans=(span,))


def test_small_jobs_are_planned_exactly_and_large_ones_by_spread_samples() -> None:
    """Fails when a small job is estimated, or a sample clusters at the start of the text."""
    small = [shard(i, 256) for i in range(4)]
    assert sample_shards(small) == small
    large = [shard(i, 256) for i in range(400)]
    picked = [s.part for s in sample_shards(large)]
    assert len(picked) == SAMPLE_STRIDES // 256
    assert picked == [50, 150, 250, 350]


def spec(workers: int, device: str = "auto") -> SimpleNamespace:
    run = SimpleNamespace(workers=workers, retrieval_workers=1)
    return SimpleNamespace(
        cfg=SimpleNamespace(run=run, model=SimpleNamespace(device=device))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers", "expected"),
    [(2, 0, 0, (1, 0)), (2, 0, 2, (2, 0)), (64, 8, 0, (8, 1)), (64, 8, 3, (3, 1))],
)
def test_pools_leave_a_whole_cpu_for_tasks(
    cpus: int, gpus: int, workers: int, expected: tuple[int, int]
) -> None:
    """Fails when actors reserve so much that Ray Data has no CPU left and hangs."""
    ray_pipeline = pytest.importorskip("ralm_engine.jobs.ray_pipeline", exc_type=ImportError)
    placement = ray_pipeline.plan_placement(spec(workers), {"CPU": cpus, "GPU": gpus})
    assert (placement.workers, placement.num_gpus) == expected
    actors = placement.workers + placement.retrieval_workers + 1
    assert actors * placement.num_cpus <= cpus - 1 + 0.01 * actors


def test_more_workers_than_gpus_is_an_error_at_once() -> None:
    """Fails when a job waits for GPUs that do not exist."""
    ray_pipeline = pytest.importorskip("ralm_engine.jobs.ray_pipeline", exc_type=ImportError)
    with pytest.raises(RunError, match="asks for 4 GPUs, the cluster has 2"):
        ray_pipeline.plan_placement(spec(4), {"CPU": 8, "GPU": 2})
