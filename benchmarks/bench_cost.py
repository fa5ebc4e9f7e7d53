"""Cost against work: tokens x 1, 2, 4, 8; k = 1, 4, 16, 64; context slack 0..252.

Rows and forwarded tokens are the engine's own for real text and real retrieval, whatever the model;
seconds are those of a small random LLaMA, so that the whole sweep takes minutes on two cores.

    python benchmarks/bench_cost.py --text test.txt.gz --passages passages.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from ralm_engine.config import job_from_table
from ralm_engine.jobs.prepare import hardware, prepare_inputs
from ralm_engine.jobs.revision import code_revision
from ralm_engine.lm.models import LoadedModel, frozen
from ralm_engine.lm.scorer import Scorer
from ralm_engine.ralm.score import lay_out
from ralm_engine.ralm.shards import Shard, Span

MAX_LENGTH, STRIDE = 512, 4
SWEEPS: dict[str, list[dict[str, int]]] = {
    "strides": [{"strides": n} for n in (32, 64, 128, 256)],
    "k": [{"k": k} for k in (1, 4, 16, 64)],
    "slack": [{"slack": s, "strides": 128} for s in (0, 4, 12, 28, 60, 124, 252)],
}
BASE = {"strides": 32, "k": 16, "slack": 0}


def small_model() -> LoadedModel:
    torch.manual_seed(0)
    return frozen(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=49152, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
            )
        )
    )  # fmt: skip


def measure(
    args: argparse.Namespace, loaded: LoadedModel, folder: Path, work: dict[str, int]
) -> dict[str, Any]:
    cfg = job_from_table(
        {
            "input": {
                "path": str(folder / "stream.txt"),
                "limit_tokens": MAX_LENGTH + STRIDE * work["strides"],
            },
            "model": {"name": args.tokenizer},
            "passages": {"path": str(args.passages.absolute())},
            "retrieval": {"index": str(args.index.absolute()), "k": work["k"], "stride": STRIDE},
            # Room for a slack of 252 beside passage, stride and lookback; few passages are cut.
            "window": {
                "max_length": MAX_LENGTH,
                "max_passage_length": 200,
                "context_slack": work["slack"],
            },
        },
        base=folder,
        source="bench_cost",
    )
    inputs = prepare_inputs(cfg, streams_file=folder / "streams.arrow")
    span = Span(stream=0, first_stride=0, num_strides=work["strides"], warmup=False)
    shard = Shard(part=0, spans=(span,))
    retriever = inputs.spec.shard_retriever()
    began = time.perf_counter()
    retrieved = retriever.retrieve(shard)
    retrieve_seconds = time.perf_counter() - began
    scorer = Scorer(loaded, max_length=MAX_LENGTH)
    took = []
    for _ in range(args.repeats):
        began = time.perf_counter()
        rows = lay_out(retrieved, inputs.spec.windows, None)
        plan = scorer.plan(rows.requests)
        scorer.run(rows.requests, plan)
        took.append(time.perf_counter() - began)
    return {
        **work,
        "rows": plan.rows,
        "tokens_asked": rows.tokens,
        "tokens_forwarded": plan.tokens_forwarded,
        "seconds": median(took),
        "retrieve_seconds": retrieve_seconds,
    }


def plot(results: dict[str, list[dict[str, Any]]]) -> str:
    """Three panels: seconds a stride against each sweep's variable, axes from zero."""
    width, height, margin = 260, 200, 44
    parts = []
    for panel, (name, rows) in enumerate(results.items()):
        left = panel * (width + margin) + margin
        values = [1000 * row["seconds"] / row["strides"] for row in rows]
        top, right = max(values) * 1.1, max(row[name] for row in rows) * 1.05
        points = [
            (left + row[name] / right * width, height - value / top * (height - 30))
            for row, value in zip(rows, values, strict=True)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
            f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{value:.0f}</text>'
            for (x, y), value in zip(points, values, strict=True)
        )
        parts.append(
            f'<path d="M{left} 20V{height}H{left + width}" fill="none" stroke="#888"/>'
            f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>'
            f'<g fill="#1f5fa8">{dots}</g>'
            f'<text x="{left + width / 2}" y="{height + 30}" text-anchor="middle">{name}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * (width + margin) + margin} '
        f'{height + 50}" font-family="sans-serif" font-size="12">'
        '<text x="8" y="14">ms a stride</text>' + "".join(parts) + "</svg>\n"
    )


def markdown(args: argparse.Namespace, results: dict[str, list[dict[str, Any]]]) -> str:
    machine = hardware()
    lines = [
        f"# Cost against work, {time.strftime('%Y-%m-%d')}",
        "",
        f"max_length {MAX_LENGTH}, stride {STRIDE}; a random LLaMA of 4 layers and hidden size 128 "
        f"in float32; {machine['processor']}, {machine['cores']} cores, torch {torch.__version__}, "
        f"commit {code_revision()}; `python benchmarks/bench_cost.py --text {args.text.name} "
        f"--passages {args.passages.name}`; medians of {args.repeats}.",
        "",
        f"![seconds a stride against strides, k and slack]({time.strftime('%Y-%m-%d')}-cost.svg)",
    ]
    for name, rows in results.items():
        base = rows[0]
        lines += ["", f"## {name}", ""]
        lines += ["| strides | k | slack | rows | asked | forwarded | s | s against the first |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [
            f"| {r['strides']} | {r['k']} | {r['slack']} | {r['rows']:,} | {r['tokens_asked']:,} | "
            f"{r['tokens_forwarded']:,} | {r['seconds']:.2f} | {r['seconds'] / base['seconds']:.2f}"
            " |"
            for r in rows
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="plain text, .gz allowed")
    parser.add_argument("--passages", type=Path, required=True, help="any passage source")
    parser.add_argument("--index", type=Path, default=Path(tempfile.gettempdir()) / "bench-index")
    parser.add_argument("--tokenizer", default="smollm2", help="model whose tokenizer is used")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    opened = gzip.open if args.text.suffix == ".gz" else open
    results: dict[str, list[dict[str, Any]]] = {}
    loaded = small_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with opened(args.text, "rt", encoding="utf-8") as source:
            (folder / "stream.txt").write_text(source.read(40_000), encoding="utf-8")
        for sweep, works in SWEEPS.items():
            results[sweep] = [measure(args, loaded, folder, BASE | work) for work in works]
            for row in results[sweep]:
                print(row, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"{time.strftime('%Y-%m-%d')}-cost"
    stem.with_suffix(".svg").write_text(plot(results), encoding="utf-8")
    stem.with_suffix(".md").write_text(markdown(args, results), encoding="utf-8")


if __name__ == "__main__":
    main()
