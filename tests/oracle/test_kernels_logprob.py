"""Token log-prob, twin and Triton, against log-softmax in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ralm_kernels import token_logprob
from ralm_kernels.heuristics import LogprobLaunch

triton_logprob = pytest.importorskip("ralm_kernels.triton_logprob")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A float32 rounding; tensor cores add with fewer bits, and tf32x3 keeps 21.
UNIT = 2.0**-24 if DEVICE == "cpu" else 2.0**-20
# Small tiles, so that small tests cross the borders of rows, vocabulary slices and hidden parts.
LAUNCH = LogprobLaunch(
    block_rows=16,
    block_vocab=16,
    block_hidden=16,
    slice_vocab=32,
    num_warps=4,
    num_stages=2,
    precision="tf32x3",
)
COLUMNS = ("nll", "logsumexp", "entropy", "rank")


def _torch(hidden, weight, targets, **options):
    return token_logprob(hidden, weight, targets, chunk_bytes=4 * 5 * weight.shape[0], **options)


def _triton(hidden, weight, targets, **options):
    options = {
        name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()
    }
    return triton_logprob.token_logprob(
        hidden.to(DEVICE), weight.to(DEVICE), targets.to(DEVICE), launch=LAUNCH, **options
    )


BACKENDS = {"torch": _torch, "triton": _triton}


@pytest.fixture(params=BACKENDS)
def score(request):
    return BACKENDS[request.param]


def _columns(result):
    return [getattr(result, name).cpu() for name in COLUMNS]


def _inputs(rows, size, vocabulary, *, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator).to(dtype)
        for shape in ((rows, size), (vocabulary, size), (vocabulary,))
    )
    return hidden, weight, bias, torch.randint(vocabulary, (rows,), generator=generator)


def _logits(hidden, weight, bias=None, logit_scale=1.0, softcap=None):
    logits = hidden.double() @ weight.double().T
    logits = (logits if bias is None else logits + bias.double()) * logit_scale
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def _expected(logits, targets):
    log_p = logits.log_softmax(-1)
    wanted = logits.gather(1, targets[:, None])
    lower = torch.arange(logits.shape[1]) < targets[:, None]
    rank = ((logits > wanted) | ((logits == wanted) & lower)).sum(1)
    nll = -log_p.gather(1, targets[:, None]).squeeze(1)
    return nll, logits.logsumexp(-1), torch.special.entr(log_p.exp()).sum(1), rank


def _bound(hidden, weight, logits):
    """Rounding of a float32 logit (D products, then its size) and of sums over the vocabulary."""
    products = float(hidden.double().norm(dim=1).max() * weight.double().norm(dim=1).max())
    largest = float(logits[logits.isfinite()].abs().max())
    return UNIT * (2 * hidden.shape[1] * products + 8 * largest + logits.shape[1] + 16)


def _check(score, hidden, weight, targets, **options):
    logits = _logits(hidden, weight, **options)
    got, want = _columns(score(hidden, weight, targets, **options)), _expected(logits, targets)
    bound = _bound(hidden, weight, logits)
    for name, mine, right in zip(COLUMNS, got, want, strict=True):
        assert mine.dtype == torch.float32
        if name != "rank":
            # Entropy weighs the rounding of a logit with its distance from the maximum.
            slack = bound * (1 + 2 * float(right.abs().max())) if name == "entropy" else bound
            assert float((mine.double() - right).abs().max()) <= slack, name
    # A rank may differ by the entries within the bound of the target's logit.
    near = (logits - logits.gather(1, targets[:, None])).abs() <= 2 * bound
    assert ((got[3] - want[3]).abs() <= near.sum(1) - 1).all()


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(
    st.tuples(st.integers(1, 35), st.integers(1, 40), st.integers(1, 90)),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from([{}, {"logit_scale": 0.5}, {"softcap": 3.0}, {"bias": True}]),
    st.integers(0, 99),
)
def test_equals_log_softmax_in_float64(name, shape, dtype, options, seed):
    """Fails when a border, a chunk, the bias, the scale or the cap is handled wrongly."""
    hidden, weight, bias, targets = _inputs(*shape, dtype=dtype, seed=seed)
    options = {"bias": bias} if options == {"bias": True} else options
    _check(BACKENDS[name], hidden, weight, targets, **options)


def test_the_bound_notices_one_wrong_logit(score):
    """Fails when the tolerance would hide a hundredth of a nat on one logit."""
    hidden, weight, _, targets = _inputs(9, 16, 50)
    zero = torch.zeros(50)
    moved = zero.clone()
    moved[targets[0]] += 1e-2
    bound = _bound(hidden, weight, _logits(hidden, weight))
    change = (
        score(hidden, weight, targets, bias=moved).nll
        - score(hidden, weight, targets, bias=zero).nll
    )
    assert float(change[0].abs()) > 10 * bound


def test_ties_are_ranked_by_token_id(score):
    """Fails when equal logits count before a lower id, or not at all before a higher one."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randint(-2, 3, (40, 8), generator=generator).float()
    weight = torch.randint(-1, 2, (30, 8), generator=generator).float().repeat(2, 1)
    targets = torch.randint(60, (40,), generator=generator)
    want = _expected(_logits(hidden, weight), targets)[3]
    assert torch.equal(_columns(score(hidden, weight, targets))[3], want.float())


def test_small_integers_are_exact_in_half_precision(score):
    """Fails when half-precision products are summed or stored in half precision."""
    hidden = torch.full((3, 33), 9.0, dtype=torch.bfloat16)
    weight = torch.ones(4, 33, dtype=torch.bfloat16)
    weight[1:, 32] = torch.tensor([2.0, 3.0, 4.0])
    # Logits 297, 306, 315, 324: above 256 bfloat16 has no odd numbers.
    got = score(hidden, weight, torch.tensor([0, 1, 3]))
    want = _expected(_logits(hidden, weight), torch.tensor([0, 1, 3]))
    torch.testing.assert_close(got.nll.cpu(), want[0].float(), rtol=1e-6, atol=1e-6)


def test_huge_logits_stay_finite(score):
    """Fails when exp() of a logit of 60,000 is taken before the maximum is removed."""
    hidden = torch.tensor([[250.0], [-250.0]])
    weight = torch.tensor([[240.0], [0.0], [-240.0]])
    got = _columns(score(hidden, weight, torch.tensor([0, 0])))
    assert got[0].tolist() == [0.0, 120000.0]
    assert got[1].tolist() == [60000.0, 60000.0]
    assert got[2].tolist() == [0.0, 0.0]
    assert got[3].tolist() == [0.0, 2.0]


def test_a_forbidden_token_has_probability_zero(score):
    """Fails when a logit of -inf makes the row NaN, or a target of -inf is not infinitely bad."""
    hidden, weight, _, _ = _inputs(3, 8, 40)
    bias = torch.zeros(40)
    bias[7] = -torch.inf
    targets = torch.tensor([3, 7, 39])
    got = _columns(score(hidden, weight, targets, bias=bias))
    keep = [t for t in range(40) if t != 7]
    want = _expected(_logits(hidden, weight)[:, keep], torch.tensor([3, 0, 38]))
    assert got[0][1] == torch.inf
    torch.testing.assert_close(got[0][[0, 2]], want[0][[0, 2]].float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1], want[1].float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[2], want[2].float(), rtol=1e-5, atol=1e-5)
    assert got[3][1] == 39


@pytest.mark.filterwarnings(
    "ignore:invalid value encountered:RuntimeWarning", "ignore:All-NaN slice:RuntimeWarning"
)
def test_a_bad_row_is_nan_and_alone(score):
    """Fails when NaN, +inf or a row of only -inf crashes, hides, or touches another row."""
    hidden, weight, bias, targets = _inputs(4, 8, 40)
    clean = _columns(score(hidden, weight, targets, bias=bias))
    hidden[1, 0], hidden[2, 3] = torch.nan, torch.inf
    got = _columns(score(hidden, weight, targets, bias=bias))
    for mine, before in zip(got, clean, strict=True):
        assert mine[1:3].isnan().all()
        assert torch.equal(mine[[0, 3]], before[[0, 3]])
    nothing = _columns(score(hidden[:1], weight, targets[:1], bias=torch.full((40,), -torch.inf)))
    assert all(column.isnan().all() for column in nothing)


def test_no_rows(score):
    """Fails when a batch that asks for nothing crashes."""
    hidden, weight, _, targets = _inputs(0, 8, 40)
    assert [column.shape for column in _columns(score(hidden, weight, targets))] == [(0,)] * 4


class _LargestTensor(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel() * result.element_size())
        return result


def test_chunks_are_bounded():
    """Fails when more than the chunk's bytes of logits exist at a time (152k entries, 64 rows)."""
    hidden, weight, _, targets = _inputs(64, 2, 152_000)
    chunk_bytes = 8 * 4 * 152_000
    with _LargestTensor() as mode:
        token_logprob(hidden, weight, targets, chunk_bytes=chunk_bytes)
    assert mode.largest == chunk_bytes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"targets": torch.tensor([0, 1, 40])}, "targets span 0..40, but the vocabulary has 40"),
        ({"targets": torch.tensor([0, -1, 3])}, "targets span -1..3"),
        ({"targets": torch.tensor([0, 1])}, r"targets must be int64 \[3\]"),
        ({"hidden": torch.zeros(3, 9)}, r"hidden must be \[M, D\]"),
        ({"hidden": torch.zeros(3, 8).half()}, "hidden is torch.float16 but weight"),
        ({"bias": torch.zeros(39)}, r"bias must be \[40\]"),
    ],
)
def test_inputs_that_disagree_are_named(score, change, said):
    """Fails when wrong inputs reach a kernel."""
    hidden, weight, bias, targets = _inputs(3, 8, 40)
    inputs = {"hidden": hidden, "weight": weight, "targets": targets, "bias": bias} | change
    head = [inputs.pop(name) for name in ("hidden", "weight", "targets")]
    with pytest.raises(ValueError, match=said):
        score(*head, **inputs)
