"""Whole models with random weights: the engine's scorer against the straightforward evaluation."""

from __future__ import annotations

import gc

import numpy as np
import torch
from gpu_measure import Rows, Settings, measure
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from ralm_engine.lm.builder import RequestBuilder
from ralm_engine.lm.cost import cost_of
from ralm_engine.lm.models import frozen
from ralm_engine.lm.requests import Requests
from ralm_engine.lm.scorer import Scorer

STRIDE = 4
LOOKBACK = 16


def run(settings: Settings) -> Rows:
    """One row per model and layout."""
    rows: Rows = []
    for name, config in _configs(tiny=settings.tiny).items():
        model = _random_model(settings, config)
        rows += _model_rows(settings, name, config, model)
        del model
        gc.collect()
        if settings.device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def _configs(*, tiny: bool) -> dict[str, PretrainedConfig]:
    if tiny:
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 97}
        return {"GPT-2 tiny": GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)}
    llama = {"max_position_embeddings": 4096, "tie_word_embeddings": False}
    return {
        "GPT-2 124M": GPT2Config(),
        "LLaMA 1B": LlamaConfig(
            hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
            num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, **llama,
        ),
        "LLaMA 7B": LlamaConfig(
            hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=32, vocab_size=32000, **llama,
        ),
    }  # fmt: skip


def _random_model(settings: Settings, config: PretrainedConfig) -> PreTrainedModel:
    """Weights are drawn on the device; on a CPU in float32, which it computes in."""
    dtype = torch.bfloat16 if settings.device.type == "cuda" else torch.float32
    torch.manual_seed(int(settings.rng.integers(2**31)))
    with torch.device(settings.device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")


def _model_rows(
    settings: Settings, name: str, config: PretrainedConfig, model: PreTrainedModel
) -> Rows:
    """Both layouts, then the padded stock model on the rows of `document_first`."""
    sizes = (24, 3, 6, 2) if settings.tiny else (896, 16, 128, 4)
    layouts = {
        "document_first": _document_first(settings, config.vocab_size, *sizes),
        "context_first": _context_first(settings, config.vocab_size, *sizes),
    }
    rows: Rows = []
    cost = cost_of(config)
    for layout, requests in layouts.items():
        scorer = Scorer(frozen(model), max_tokens=16384, max_length=1024)
        plan = scorer.plan(requests)
        timing = measure(settings, lambda: scorer.run(requests, plan))  # noqa: B023
        flop = cost.flop(tokens=plan.tokens_forwarded, pairs=plan.attended, wants=plan.wants)
        seconds = timing.median_ms / 1e3
        rows.append({
            "model": name,
            "layout": layout,
            "backend": scorer.backend,
            **timing.columns(),
            "rows_per_s": round(plan.rows / seconds, 1),
            "asked_tokens_per_s": round(plan.tokens_asked / seconds),
            "forwarded_tokens_per_s": round(plan.tokens_forwarded / seconds),
            "tflops": round(flop / seconds / 1e12, 1),
            "mfu": round(flop / seconds / 1e12 / settings.peak_tflops, 3),
        })  # fmt: skip
    stock = measure(settings, lambda: _stock(settings, model, layouts["document_first"]))
    num_rows = layouts["document_first"].leaves().size
    rows.append({
        "model": name,
        "layout": "straightforward",
        "backend": "sdpa, full logits",
        **stock.columns(),
        "rows_per_s": round(num_rows / stock.median_ms * 1e3, 1),
    })  # fmt: skip
    return rows


def _document_first(
    settings: Settings, vocabulary: int, context: int, k: int, passage: int, strides: int
) -> Requests:
    """Every candidate is a passage of its own; rows want the lookback and the stride."""
    rng, builder = settings.rng, RequestBuilder()
    stream = rng.integers(0, vocabulary, context + STRIDE * strides).astype(np.int32)
    for stride in range(strides):
        row = stream[STRIDE * stride : STRIDE * stride + context]
        for _ in range(k):
            text = rng.integers(0, vocabulary, passage).astype(np.int32)
            seen = builder.add_segment(text)
            leaf = builder.add_segment(row, position=passage, sees=[(seen, passage)])
            _want_last(builder, leaf, row)
    return builder.build()


def _context_first(
    settings: Settings, vocabulary: int, context: int, k: int, passage: int, strides: int
) -> Requests:
    """One context for all candidates of a stretch; each branch is a passage and the last tokens."""
    rng, builder = settings.rng, RequestBuilder()
    stream = rng.integers(0, vocabulary, context + STRIDE * strides).astype(np.int32)
    shared = builder.add_segment(stream)
    repeat = min(context // 2, 2 * LOOKBACK)
    for stride in range(strides):
        end = STRIDE * stride + context
        sees = end - repeat
        for _ in range(k):
            text = rng.integers(0, vocabulary, passage).astype(np.int32)
            branch = np.concatenate([text, stream[sees:end]])
            leaf = builder.add_segment(branch, position=sees, sees=[(shared, sees)])
            _want_last(builder, leaf, branch)
    return builder.build()


def _want_last(builder: RequestBuilder, leaf: int, tokens: np.ndarray) -> None:
    count = min(LOOKBACK + STRIDE, tokens.size - 1)
    offsets = np.arange(tokens.size - 1 - count, tokens.size - 1, dtype=np.int32)
    builder.add_wants(leaf, predictor_segment=leaf, offsets=offsets, targets=tokens[offsets + 1])


def _stock(settings: Settings, model: PreTrainedModel, requests: Requests) -> None:
    """Per stride a padded batch of k rows through the stock model, all logits, as is usual."""
    leaves = requests.leaves()
    k = 3 if settings.tiny else 16
    for first in range(0, leaves.size, k):
        rows = []
        for leaf in leaves[first : first + k].tolist():
            seen = requests.sees(leaf)
            rows.append(np.concatenate([*map(requests.tokens, seen), requests.tokens(leaf)]))
        ids = torch.from_numpy(np.stack(rows)).long().to(settings.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
            nll = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
            )
            # sync: the sums that the evaluation compares.
            nll.view(len(rows), -1)[:, -STRIDE:].sum(1).cpu()
