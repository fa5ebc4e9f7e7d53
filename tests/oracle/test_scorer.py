"""Packed and padded scoring against one row at a time through the stock model.

Tolerance: float32 sums of at most 64 hidden and 24 visible values in another order differ by a few
1e-6; the contract is 1e-4 nat a token, and a wrong mask, position or head row moves an NLL by more
than 1e-2 in these models (the mutation test shows it).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from ralm_engine.errors import InputError
from ralm_engine.lm.models import LoadedModel, frozen
from ralm_engine.lm.packing import pack
from ralm_engine.lm.reference import score_row_by_row
from ralm_engine.lm.requests import Requests
from ralm_engine.lm.scorer import Scorer
from ralm_engine.ralm.config import WindowConfig
from ralm_engine.ralm.rows import DocumentFirst, StreamBlock
from ralm_engine.ralm.windows import Windows

VOCABULARY = 211
TOLERANCE = 1e-4

_LLAMA_LIKE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
_GPT_LIKE = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
}  # fmt: skip

CONFIGS = {
    "gpt2": transformers.GPT2Config(**_GPT_LIKE),
    "gpt_neo": transformers.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=4, intermediate_size=48,
        max_position_embeddings=128, window_size=8, attention_types=[[["global", "local"], 1]],
    ),
    "gptj": transformers.GPTJConfig(rotary_dim=4, **_GPT_LIKE),
    "gpt_neox": transformers.GPTNeoXConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128,
    ),
    "opt": transformers.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128, word_embed_proj_dim=16,
    ),
    "llama": transformers.LlamaConfig(**_LLAMA_LIKE),
    "qwen2": transformers.Qwen2Config(**_LLAMA_LIKE),
    "qwen3": transformers.Qwen3Config(head_dim=8, **_LLAMA_LIKE),
    "mistral": transformers.MistralConfig(**_LLAMA_LIKE),
    "mistral_sliding": transformers.MistralConfig(sliding_window=6, **_LLAMA_LIKE),
    "gemma": transformers.GemmaConfig(head_dim=8, **_LLAMA_LIKE),
    "gemma2": transformers.Gemma2Config(head_dim=8, sliding_window=6, **_LLAMA_LIKE),
    "bloom": transformers.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4,
    ),
}  # fmt: skip
PADDED_ONLY = {"gpt_neo", "mistral_sliding", "gemma2", "bloom"}


def tiny(name: str) -> LoadedModel:
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32)
    # Random weights of the usual size give nearly uniform predictions, which would hide errors.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return frozen(model)


def requests_of(
    seed: int, *, slack: int = 0, warmup: str = "reference", bos: int | None = None
) -> Requests:
    rng = np.random.default_rng(seed)
    windows = Windows(
        cfg=WindowConfig(max_length=24, max_passage_length=7, warmup=warmup, context_slack=slack),
        stride=3,
        lookback=4,
        num_bos=0 if bos is None else 1,
    )
    tokens = rng.integers(0, VOCABULARY, 47).astype(np.int32)
    strides = windows.num_strides(tokens.size)
    block = StreamBlock(
        stream_id="s", num_tokens=tokens.size, token_base=0, tokens=tokens, first_stride=0,
        num_strides=strides, warmup=True,
    )  # fmt: skip
    pool = [rng.integers(0, VOCABULARY, n).astype(np.int32) for n in (0, 1, 3, 7, 7, 5)]
    passages = [
        [pool[i] for i in rng.choice(len(pool), rng.integers(0, 5), replace=False)]
        for _ in range(strides)
    ]
    layout = DocumentFirst(windows, bos=bos)
    layout.add_warmup(block, warmup_end=windows.warmup_end(tokens.size), line_stride=-1)
    layout.add_block(block, passages)
    return layout.build().requests


@pytest.mark.parametrize("attention", ["reference", "cpu", "padded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_equals_the_stock_model_row_by_row(
    name: str, attention: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when mask, positions, predictor positions or LM head are off for an architecture."""
    loaded = tiny(name)
    requests = requests_of(3, slack=5)
    scorer = Scorer(loaded, attention=attention, max_tokens=70, max_length=24)
    assert scorer.backend == ("padded" if name in PADDED_ONLY else attention)
    if name in PADDED_ONLY and attention != "padded":
        assert "padded batches" in caplog.text
    got, own = scorer.score(requests), score_row_by_row(loaded, requests)
    np.testing.assert_allclose(got.nll_W, own.nll_W, atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(got.entropy_W, own.entropy_W, atol=TOLERANCE, rtol=0)
    assert (got.rank_W == own.rank_W).mean() > 0.99  # ranks may swap where logits tie in rounding


@pytest.mark.parametrize("attention", ["reference", "cpu"])
def test_the_comparison_notices_a_shifted_position(attention: str) -> None:
    """The mutation check: one leaf's positions moved by one must break the tolerance."""
    loaded = tiny("llama")
    requests = requests_of(3)
    moved = requests.position_S.copy()
    moved[np.flatnonzero(moved)[0]] += 1
    changed = Requests(
        **{n: getattr(requests, n) for n in Requests.__slots__ if n != "position_S"},
        position_S=moved,
    )
    scorer = Scorer(loaded, attention=attention, max_tokens=70, max_length=24)
    own = score_row_by_row(loaded, requests)
    assert np.abs(scorer.score(changed).nll_W - own.nll_W).max() > 10 * TOLERANCE


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    slack=st.sampled_from([0, 3, 8]),
    warmup=st.sampled_from(["reference", "none"]),
    bos=st.sampled_from([None, 1]),
    max_tokens=st.sampled_from([1, 40, 10_000]),
)
def test_any_window_policy_and_budget_equals_row_by_row(
    seed: int, slack: int, warmup: str, bos: int | None, max_tokens: int
) -> None:
    """Fails when packing drops, repeats or misplaces a row for some shape of job."""
    loaded = tiny("llama")
    requests = requests_of(seed, slack=slack, warmup=warmup, bos=bos)
    scorer = Scorer(loaded, attention="cpu", max_tokens=max_tokens, max_length=24)
    own = score_row_by_row(loaded, requests)
    np.testing.assert_allclose(scorer.score(requests).nll_W, own.nll_W, atol=TOLERANCE, rtol=0)


def test_deterministic_rows_do_not_depend_on_their_company() -> None:
    """Probe 14: bit-identical NLLs for a row alone and among others, in any order."""
    loaded = tiny("llama")
    requests = requests_of(5)
    scorer = Scorer(loaded, attention="cpu", max_length=24, one_row_per_batch=True)
    whole = scorer.score(requests)
    plan = scorer.plan(requests)
    assert len(plan.batches) == plan.rows
    backwards = type(plan)(
        batches=plan.batches[::-1], rows=plan.rows, tokens_asked=plan.tokens_asked,
        tokens_forwarded=plan.tokens_forwarded, attended=plan.attended, wants=plan.wants,
    )  # fmt: skip
    assert scorer.run(requests, backwards).nll_W.tobytes() == whole.nll_W.tobytes()


@pytest.mark.parametrize("length", [31, 32, 33])
def test_the_same_prompt_twice_is_the_same_row(length: int) -> None:
    """Probe 14: identical rows give identical numbers at lengths around a power of two."""
    loaded = tiny("gpt2")
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, length).astype(np.int32)
    from ralm_engine.lm.builder import RequestBuilder

    builder = RequestBuilder()
    for _ in range(2):
        leaf = builder.add_segment(tokens)
        offsets = np.arange(length - 1, dtype=np.int32)
        builder.add_wants(leaf, predictor_segment=leaf, offsets=offsets, targets=tokens[1:])
    got = Scorer(loaded, attention="cpu", max_length=40).score(builder.build()).nll_W
    assert got[: length - 1].tobytes() == got[length - 1 :].tobytes()


def test_an_infinite_or_nan_logit_comes_back_as_nan() -> None:
    """Probe 12: a poisoned head row must not crash, and every touched NLL must say so."""
    loaded = tiny("gpt2")
    requests = requests_of(3)
    scorer = Scorer(loaded, attention="cpu", max_length=24)
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight[7] = torch.nan
    assert np.isnan(scorer.score(requests).nll_W).all()


def test_rows_beyond_the_models_positions_are_refused() -> None:
    """Fails when the limit is checked after, or not at all."""
    with pytest.raises(InputError, match="max_length = 129 is above the model's 128"):
        Scorer(tiny("gpt2"), max_length=129)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), max_tokens=st.integers(1, 200), slack=st.sampled_from([0, 6]))
def test_packing_places_every_want_once_and_keeps_the_budget(
    seed: int, max_tokens: int, slack: int
) -> None:
    """Fails when a want is lost or doubled, a batch exceeds its budget, or a seen segment lacks."""
    requests = requests_of(seed, slack=slack)
    plan = pack(requests, max_tokens=max_tokens)
    wants = np.concatenate([batch.wants for batch in plan.batches])
    assert np.array_equal(np.sort(wants), np.arange(requests.num_wants))
    for batch in plan.batches:
        members = batch.segments.tolist()
        assert len(set(members)) == len(members)
        for place, segment in enumerate(members):
            assert set(requests.sees(segment).tolist()) <= set(members[:place])
        leaves = np.intersect1d(batch.segments, requests.leaves())
        assert batch.num_tokens <= max_tokens or leaves.size == 1
    assert plan.tokens_forwarded <= plan.tokens_asked
