"""Every attention backend against the dense reference in float64, and that against plain loops."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ralm_kernels import SegmentPlan, cpu, flash, reference

triton_attention = pytest.importorskip("ralm_kernels.triton_attention")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A float32 rounding; tensor cores add with fewer bits, and tf32x3 keeps 21.
UNIT = 2.0**-24 if DEVICE == "cpu" else 2.0**-20
HALF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def _triton(q, k, v, plan, *, scale):
    out, lse = triton_attention.segment_attention(
        q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), plan, scale=scale
    )
    return out.cpu(), lse.cpu()


def _loop_varlen(q, k, v, cu_q, cu_k, max_q, max_k, *, is_causal, scale):
    """What flash-attn's kernel computes, one sequence at a time: the adapter is what is tested."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    assert max_q == int(cu_q.diff().max())
    assert max_k == int(cu_k.diff().max())
    borders = zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True)
    for q_begin, q_end, k_begin, k_end in borders:
        rows, keys = slice(q_begin, q_end), slice(k_begin, k_end)
        group = q.shape[1] // k.shape[1]
        heads = (x[keys].float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
        key, value = heads
        scores = q[rows].float().transpose(0, 1) @ key.transpose(1, 2) * scale
        if is_causal:
            scores.masked_fill_(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        out[rows] = (scores.softmax(-1) @ value).transpose(0, 1).to(q.dtype)
        lse[:, rows] = scores.logsumexp(-1)
    return out, lse


def _flash(q, k, v, plan, *, scale):
    return flash.segment_attention(q, k, v, plan, scale=scale, varlen=_loop_varlen)


BACKENDS = {
    "flash": _flash,
    "reference": reference.segment_attention,
    "cpu": cpu.segment_attention,
    "triton": _triton,
}


@pytest.fixture(params=BACKENDS)
def attend(request):
    return BACKENDS[request.param]


@st.composite
def plans(draw, max_length: int = 40) -> SegmentPlan:
    """Ragged segments; some see what the one before them sees, others any disjoint ranges."""
    lengths = draw(st.lists(st.integers(0, max_length), max_size=6))
    visible: list[list[tuple[int, int]]] = []
    at = 0
    for length in lengths:
        if visible and draw(st.booleans()):
            visible.append(visible[-1])
        else:
            cuts = sorted(draw(st.lists(st.integers(0, at), max_size=4)))
            visible.append(list(zip(cuts[::2], cuts[1::2], strict=False)))
        at += length
    return SegmentPlan.from_lists(lengths, visible)


def _inputs(plan, *, heads=2, key_heads=1, size=32, value_size=None, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(heads, size), (key_heads, size), (key_heads, value_size or size)]
    return [torch.randn(plan.num_tokens, *s, generator=generator).to(dtype) for s in shapes]


def _bound(q, k, v, scale):
    """Error of an attention output and lse in the dtype of q, from rounding alone.

    A score is a sum of D products: its error is at most D roundings of |q| |k| scale. A softmax
    weight moves by twice that, and by a rounding for each of the keys it is summed over. Half
    precision products are exact in float32, but weights, the outputs of both parts, and their
    merge round to half once each.
    """
    largest_q, largest_k = (x.float().norm(dim=-1).max() for x in (q, k))
    score = q.shape[-1] * UNIT * float(largest_q * largest_k) * scale
    weight = 2 * score + (k.shape[0] + 8) * UNIT
    largest_v = float(v.float().abs().max())
    return (weight + 3 * HALF.get(q.dtype, 0.0)) * largest_v, weight + 8 * UNIT * (1 + score / UNIT)


def _check(attend, plan, *, scale=None, **geometry):
    q, k, v = _inputs(plan, **geometry)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, lse = attend(q, k, v, plan, scale=scale)
    assert out.shape == (*q.shape[:2], v.shape[2])
    assert lse.shape == q.shape[:2]
    assert out.dtype == q.dtype
    if plan.num_tokens:
        want, want_lse = reference.segment_attention(
            q.double(), k.double(), v.double(), plan, scale=scale
        )
        out_bound, lse_bound = _bound(q, k, v, scale)
        assert float((out.double() - want).abs().max()) <= out_bound
        assert float((lse.double() - want_lse).abs().max()) <= lse_bound


@settings(max_examples=20, deadline=None)
@given(plans(max_length=8), st.integers(0, 99))
def test_the_reference_is_what_the_spec_says(plan, seed):
    """Fails when the specification itself shows a token more or less than the spec's sentence."""
    q, k, v = (x.double() for x in _inputs(plan, heads=4, key_heads=2, size=4, seed=seed))
    out, lse = reference.segment_attention(q, k, v, plan, scale=0.3)
    cu, ranges = plan.cu_tokens_S1.tolist(), plan.cu_ranges_S1.tolist()
    for s in range(plan.num_segments):
        seen = [
            t
            for r in range(ranges[s], ranges[s + 1])
            for t in range(int(plan.range_begin_R[r]), int(plan.range_end_R[r]))
        ]
        for i in range(cu[s], cu[s + 1]):
            keys = seen + list(range(cu[s], i + 1))
            for h in range(4):
                scores = [0.3 * float(q[i, h] @ k[t, h // 2]) for t in keys]
                total = math.fsum(math.exp(score) for score in scores)
                assert float(lse[i, h]) == pytest.approx(math.log(total), abs=1e-12)
                want = sum(math.exp(x) * v[t, h // 2] for x, t in zip(scores, keys, strict=True))
                torch.testing.assert_close(out[i, h], want / total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=12, deadline=None)
@given(plans(), st.sampled_from([(1, 1), (3, 1), (4, 2)]), st.integers(0, 99))
def test_backends_equal_the_reference_on_ragged_batches(name, plan, heads, seed):
    """Fails when a backend misreads a range, a border, an empty segment or a head group."""
    _check(BACKENDS[name], plan, heads=heads[0], key_heads=heads[1], seed=seed)


@pytest.mark.parametrize("size", [32, 64, 80, 96, 128, 256])
def test_every_head_size(attend, size):
    """Fails when a head size is padded or strided wrongly."""
    plan = SegmentPlan.from_lists([9, 21, 5], [[], [(0, 9)], [(0, 4), (9, 12)]])
    _check(attend, plan, size=size, heads=3)


@pytest.mark.parametrize("name", ["reference", "cpu", "triton"])
@pytest.mark.parametrize(("size", "value_size"), [(32, 64), (64, 32), (48, 16)])
def test_values_may_have_another_size(name, size, value_size):
    """Fails when v is taken to be as wide as k."""
    plan = SegmentPlan.from_lists([9, 21], [[], [(0, 9)]])
    _check(BACKENDS[name], plan, size=size, value_size=value_size)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision(attend, dtype):
    """Fails when half precision costs more than the roundings of weights and output."""
    plan = SegmentPlan.from_lists([40, 17, 50], [[], [(0, 40)], [(0, 40), (40, 57)]])
    _check(attend, plan, size=64, heads=6, key_heads=2, dtype=dtype)


def test_the_bound_notices_one_missing_key(attend):
    """Fails when the error bound is so wide that a range one token short would pass it."""
    full = SegmentPlan.from_lists([40, 40], [[], [(0, 40)]])
    short = SegmentPlan.from_lists([40, 40], [[], [(0, 39)]])
    q, k, v = _inputs(full)
    out, lse = attend(q, k, v, short, scale=0.2)
    want, want_lse = reference.segment_attention(q, k, v, full, scale=0.2)
    out_bound, lse_bound = _bound(q, k, v, 0.2)
    assert float((out - want).abs().max()) > 10 * out_bound
    assert float((lse - want_lse).abs().max()) > 10 * lse_bound


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 3, 0]])
def test_empty_segments_are_legal(attend, lengths):
    """Fails when an empty batch or segment crashes a backend (the fused kernel divides by 0)."""
    visible = [[(0, 0)] for _ in lengths]
    _check(attend, SegmentPlan.from_lists(lengths, visible))


def test_views_of_a_fused_projection(attend):
    """Fails when a backend takes q, k and v to be contiguous."""
    plan = SegmentPlan.from_lists([9, 21], [[], [(0, 9)]])
    fused = torch.randn(30, 5, 32, generator=torch.Generator().manual_seed(1))
    q, k, v = fused[:, :3], fused[:, 3:4], fused[:, 4:]
    out, lse = attend(q, k, v, plan, scale=0.2)
    want = attend(q.contiguous(), k.contiguous(), v.contiguous(), plan, scale=0.2)
    assert torch.equal(out, want[0])
    assert torch.equal(lse, want[1])
    by_head = fused.transpose(0, 1).contiguous().transpose(0, 1)
    out, lse = attend(by_head[:, :3], by_head[:, 3:4], by_head[:, 4:], plan, scale=0.2)
    assert torch.equal(out, want[0])


def test_a_prepared_plan_gives_the_same_bits():
    """Fails when planning once a batch computes something else than planning in the call."""
    plan = SegmentPlan.from_lists([9, 21, 21], [[], [(0, 9)], [(0, 9)]])
    q, k, v = _inputs(plan, heads=4, key_heads=2)
    lazy = triton_attention.prepare(plan)
    for attend, prepared in ((cpu.segment_attention, cpu.prepare(plan)), (_triton, lazy)):
        out, lse = attend(q, k, v, prepared, scale=0.2)
        want, want_lse = attend(q, k, v, plan, scale=0.2)
        assert torch.equal(out, want)
        assert torch.equal(lse, want_lse)
    _triton(q, k, v, lazy, scale=0.2)
    assert len(lazy.uploaded) == 1


def test_equal_rows_are_equal_bits():
    """Fails when a row's place among rows of its length decides how its sums are rounded."""
    row = torch.randn(31, 6, 8, generator=torch.Generator().manual_seed(4)).repeat(4, 1, 1)
    plan = SegmentPlan.from_lists([31] * 4)
    out, lse = cpu.segment_attention(row[:, :2], row[:, 2:4], row[:, 4:], plan, scale=0.3)
    assert all(torch.equal(part, out[:31]) for part in out.split(31))
    assert all(torch.equal(part, lse[:31]) for part in lse.split(31))


def test_neighbours_that_see_the_same_are_one_call():
    """Fails when adjacent segments that see the same keys are split up."""
    plan = SegmentPlan.from_lists([8, 5, 5, 5], [[], [(0, 4), (4, 8)], [(0, 8)], []])
    calls = cpu.prepare(plan)
    assert calls.causal == ((0, 8), (8, 13), (13, 18), (18, 23))
    assert [(c.begin, c.end, c.keys) for c in calls.visible] == [(8, 18, ((0, 8),))]


def test_missing_flash_attn_is_named(monkeypatch):
    """Fails when a missing flash-attn shows as a bare import error from inside a layer."""
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    plan = SegmentPlan.from_lists([4])
    with pytest.raises(ModuleNotFoundError, match="flash-attn is not installed; install it"):
        flash.segment_attention(*_inputs(plan), plan, scale=0.2)


class _LargestTensor(TorchDispatchMode):
    """Records the most elements any operation returned."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in result if isinstance(result, tuple) else (result,):
            if isinstance(leaf, torch.Tensor):
                self.largest = max(self.largest, leaf.numel())
        return result


@pytest.mark.parametrize("num_segments", [4, 16])
def test_the_cpu_backend_never_makes_a_square(num_segments):
    """Fails when anything larger than q itself is allocated: memory is linear in tokens."""
    plan = SegmentPlan.from_lists([128] * num_segments, [[]] + [[(0, 128)]] * (num_segments - 1))
    q, k, v = _inputs(plan, heads=2, size=16)
    with _LargestTensor() as mode:
        cpu.segment_attention(q, k, v, plan, scale=0.2)
    assert mode.largest == q.numel()


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(5, 2, 8), (5, 1, 8), (5, 1, 8)], "the plan packs 4 tokens"),
        ([(4, 2, 8), (4, 1, 4), (4, 1, 8)], "k must share q's head size"),
        ([(4, 3, 8), (4, 2, 8), (4, 2, 8)], "multiple of key heads"),
        ([(4, 16), (4, 1, 8), (4, 1, 8)], "must be \\[tokens, heads, head size\\]"),
    ],
)
def test_shapes_that_disagree_are_named(attend, shapes, said):
    """Fails when wrong shapes reach a kernel."""
    plan = SegmentPlan.from_lists([4])
    with pytest.raises(ValueError, match=said):
        attend(*(torch.zeros(shape) for shape in shapes), plan, scale=0.2)


def test_mixed_dtypes_are_named(attend):
    """Fails when a half-precision k meets a float32 q."""
    plan = SegmentPlan.from_lists([4])
    q, k, v = _inputs(plan)
    with pytest.raises(ValueError, match="must share one dtype"):
        attend(q, k.bfloat16(), v, plan, scale=0.2)
