"""The engine against the straightforward evaluation, same stream, model, dtype and process.

Straightforward: for every stride a batch of k padded rows through the stock model with full
logits, one run for each of none, first, logprob (rank k rows, then score the chosen) and oracle.
Its cost is the same for every stride, so one stride a turn is timed; the engine scores several
consecutive ones a turn, since sharing between them is what it lives on. Both take turns, ratios are
formed turn by turn, and numbers are compared on the strides both scored.

    python benchmarks/bench_scoring.py --text test.txt.gz --passages passages.jsonl.gz
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from straightforward import LOOKBACK, STRIDE, Case, Straightforward

from ralm_engine.config import job_from_table
from ralm_engine.jobs.plan import matrix_rate
from ralm_engine.jobs.prepare import hardware, prepare_inputs
from ralm_engine.jobs.revision import code_revision
from ralm_engine.lm.cost import cost_of
from ralm_engine.lm.models import LoadedModel, load_model
from ralm_engine.lm.scorer import Scorer
from ralm_engine.ralm.rows import BASELINE
from ralm_engine.ralm.score import lay_out

Scores = dict[int, dict[str, np.ndarray]]
RANKERS = ("none", "first", "logprob", "oracle")


def prepare(args: argparse.Namespace, folder: Path, *, max_length: int, strides: int) -> Case:
    text = folder / "stream.txt"
    opened = gzip.open if args.text.suffix == ".gz" else open
    with opened(args.text, "rt", encoding="utf-8") as source:
        text.write_text(source.read(40 * (max_length + STRIDE * strides)), encoding="utf-8")
    cfg = job_from_table(
        {
            "input": {"path": str(text), "limit_tokens": max_length + STRIDE * strides},
            "model": {"name": args.model},
            "passages": {"path": str(args.passages.absolute())},
            "retrieval": {"index": str(args.index.absolute()), "k": args.k, "stride": STRIDE},
            "window": {
                "max_length": max_length,
                "max_passage_length": 100 if max_length < 512 else 256,
            },
            "rank": {"lookback": LOOKBACK},
        },
        base=folder,
        source="bench_scoring",
    )
    inputs = prepare_inputs(cfg, streams_file=folder / "streams.arrow")
    return Case(inputs, inputs.spec.shard_retriever())


class Engine:
    """The engine's own path over the strides of a turn at once."""

    def __init__(self, loaded: LoadedModel, case: Case, *, slack: int, max_tokens: int) -> None:
        self._case = case
        windows = case.inputs.spec.windows
        self._windows = replace(windows, cfg=replace(windows.cfg, context_slack=slack))
        self._scorer = Scorer(loaded, max_tokens=max_tokens, max_length=case.max_length)

    def score(self, first: int, count: int) -> tuple[dict[int, dict[str, np.ndarray]], Any]:
        """Target NLLs by stride and ranker, and the pack plan."""
        rows = lay_out(self._case.retrieved(first, count), self._windows, None)
        plan = self._scorer.plan(rows.requests)
        nll = self._scorer.run(rows.requests, plan).nll_W
        by_stride: dict[int, dict[int, tuple[np.ndarray, float]]] = {}
        for line in rows.lines:
            target = nll[line.target_want : line.target_want + STRIDE]
            rank = nll[line.lookback_want : line.lookback_want + line.lookback_len].sum()
            by_stride.setdefault(line.stride, {})[line.rank] = (target, float(rank))
        return {stride: _choices(found) for stride, found in by_stride.items()}, plan


def _choices(found: dict[int, tuple[np.ndarray, float]]) -> dict[str, np.ndarray]:
    ranks = sorted(rank for rank in found if rank != BASELINE)
    logprob = min(ranks, key=lambda rank: found[rank][1])
    oracle = min(ranks, key=lambda rank: float(found[rank][0].sum()))
    return {
        "none": found[BASELINE][0],
        "first": found[0][0],
        "logprob": found[logprob][0],
        "oracle": found[oracle][0],
    }


def perplexity(scores: Scores, strides: Iterable[int], ranker: str) -> float:
    return float(np.exp(np.mean([scores[stride][ranker] for stride in strides])))


def resident(field_name: str) -> int:
    """Resident bytes of this process: VmRSS, now, or VmHWM, at the peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field_name))
    return 1024 * int(line.split()[1])


def measured(work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Seconds, peak resident bytes above those at the start, and the result."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets the peak back
    before, began = resident("VmRSS"), time.perf_counter()
    result = work()
    return time.perf_counter() - began, resident("VmHWM") - before, result


@dataclass
class Tally:
    """What one path did over all turns."""

    seconds: list[float] = field(default_factory=list)  # a stride, one entry a turn
    peak_bytes: int = 0
    scores: Scores = field(default_factory=dict)
    plans: list[Any] = field(default_factory=list)

    def total(self, name: str) -> float:
        return sum(getattr(plan, name) for plan in self.plans)


def run_case(
    args: argparse.Namespace, loaded: LoadedModel, case: Case, *, turns: int, strides: list[int]
) -> list[dict[str, Any]]:
    """Turns of one straightforward stride and of several strides by each engine path."""
    slow = Straightforward(loaded, case)
    engines = {s: Engine(loaded, case, slack=s, max_tokens=args.max_tokens) for s in args.slack}
    tallies = {slack: Tally() for slack in args.slack}
    baseline = Tally()
    for turn in range(turns):
        first = turn * max(strides)
        took, peak, baseline.scores[first] = measured(lambda first=first: slow.score(first))
        baseline.seconds.append(took)
        baseline.peak_bytes = max(baseline.peak_bytes, peak)
        print(case.max_length, "straightforward", f"{took:.2f} s a stride", flush=True)
        for (slack, engine), count in zip(engines.items(), strides, strict=True):
            took, peak, (scores, plan) = measured(
                lambda e=engine, first=first, count=count: e.score(first, count)
            )
            tallies[slack].seconds.append(took / count)
            tallies[slack].peak_bytes = max(tallies[slack].peak_bytes, peak)
            tallies[slack].scores.update(scores)
            tallies[slack].plans.append(plan)
            print(case.max_length, slack, f"{took / count:.2f} s a stride", flush=True)
    return _rows(args, loaded, case, baseline, tallies)


def _rows(
    args: argparse.Namespace, loaded: LoadedModel, case: Case, baseline: Tally,
    tallies: dict[int, Tally],
) -> list[dict[str, Any]]:  # fmt: skip
    cost, rate = cost_of(loaded.model.config), matrix_rate(case.inputs.spec.cfg.model)
    rows: list[dict[str, Any]] = [
        {
            "max_length": case.max_length, "path": "straightforward", "ratio": 1.0,
            "strides": len(baseline.scores), "seconds_per_stride": median(baseline.seconds),
            "tokens_per_stride": (2 * args.k + 3) * case.max_length,
            "peak_bytes": baseline.peak_bytes,
        }
    ]  # fmt: skip
    exact = tallies[args.slack[0]].scores
    for slack, tally in tallies.items():
        num = len(tally.scores)
        flop = cost.flop(
            tokens=tally.total("tokens_forwarded"), pairs=tally.total("attended"),
            wants=tally.total("wants"),
        )  # fmt: skip
        both = sorted(set(baseline.scores) & set(tally.scores))
        error = max(
            float(np.abs(tally.scores[stride][name] - baseline.scores[stride][name]).max())
            for stride in both
            for name in RANKERS
        )
        if slack == 0 and not error < 1e-3:
            raise SystemExit(f"results differ by {error}: no ratio is printed for wrong numbers")
        common = sorted(set(exact) & set(tally.scores))
        took = median(tally.seconds)
        pairs = zip(baseline.seconds, tally.seconds, strict=True)
        rows.append(
            {
                "max_length": case.max_length, "path": f"engine, slack {slack}",
                "strides": num, "seconds_per_stride": took,
                "ratio": median(slow / fast for slow, fast in pairs),
                "tokens_per_stride": tally.total("tokens_forwarded") / num,
                "peak_bytes": tally.peak_bytes,
                "of_floor": flop / rate / num / took,
                "largest_difference": error,
                "compared_strides": len(common),
                "perplexity_change": {
                    name: perplexity(tally.scores, common, name) / perplexity(exact, common, name)
                    - 1
                    for name in RANKERS
                },
            }
        )  # fmt: skip
    return rows


def profile(args: argparse.Namespace, loaded: LoadedModel, case: Case) -> list[dict[str, Any]]:
    """Where the engine's time goes: operators by their own CPU time, over one engine run."""
    engine = Engine(loaded, case, slack=0, max_tokens=args.max_tokens)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        engine.score(0, args.exact_strides[0])
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [
        {"operator": e.key, "share": e.self_cpu_time_total / total, "calls": e.count}
        for e in events[:12]
    ]


def markdown(report: dict[str, Any]) -> str:
    machine = report["hardware"]
    lines = [
        f"# Scoring against the straightforward evaluation, {report['date']}",
        "",
        f"{report['model']}, float32, k = {report['k']}, stride {STRIDE}; {machine['processor']}, "
        f"{machine['cores']} cores, torch {report['torch']}, commit {report['commit']}; "
        f"`{report['command']}`.",
        "",
        "| max_length | path | s/stride | ratio | tokens/stride | of FLOP floor | peak MiB "
        "| largest diff. |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['max_length']} | {row['path']} | {row['seconds_per_stride']:.3f} | "
        f"{row['ratio']:.2f} | {row['tokens_per_stride']:,.0f} | "
        + (f"{row['of_floor']:.0%}" if "of_floor" in row else "")
        + f" | {row['peak_bytes'] / 2**20:,.0f} | "
        + (f"{row['largest_difference']:.1e}" if "largest_difference" in row else "")
        + " |"
        for row in report["rows"]
    ]
    lines += [
        "",
        "Perplexity change under slack, against exact, on the strides that both scored:",
        "",
    ]
    lines += [
        "| max_length | path | strides | none | first | logprob | oracle |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        if "perplexity_change" in row:
            changes = " | ".join(f"{row['perplexity_change'][n]:+.2%}" for n in RANKERS)
            lines.append(
                f"| {row['max_length']} | {row['path']} | {row['compared_strides']} | {changes} |"
            )
    lines += ["", "Peak: resident memory above that of the loaded model."]
    lines += ["", "Where the engine's time goes (own CPU time by operator, slack 0):", ""]
    lines += [f"* {e['operator']}: {e['share']:.1%}" for e in report["profile"]]
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="plain text, .gz allowed")
    parser.add_argument("--passages", type=Path, required=True, help="any passage source")
    parser.add_argument("--index", type=Path, default=Path(tempfile.gettempdir()) / "bench-index")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 1], help="of each length")
    parser.add_argument("--exact-strides", type=int, nargs="+", default=[4, 2], help="a turn")
    parser.add_argument("--slack-strides", type=int, nargs="+", default=[16, 8], help="a turn")
    parser.add_argument("--slack", type=int, nargs="+", default=[0, 60])
    parser.add_argument("--max-tokens", type=int, default=16384)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        rows: list[dict[str, Any]] = []
        shares: list[dict[str, Any]] = []
        loaded = None
        for length, turns, exact, merged in zip(
            args.lengths, args.turns, args.exact_strides, args.slack_strides, strict=True
        ):
            strides = [exact if slack == 0 else merged for slack in args.slack]
            case = prepare(args, Path(folder), max_length=length, strides=turns * max(strides))
            loaded = loaded or load_model(case.inputs.spec.cfg.model)
            rows += run_case(args, loaded, case, turns=turns, strides=strides)
            print(json.dumps(rows, indent=1), flush=True)
            shares = shares or profile(args, loaded, case)
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "command": "python benchmarks/bench_scoring.py " + " ".join(
            f"--{n.replace('_', '-')} {getattr(args, n).name}" for n in ("text", "passages")
        ),
        "commit": code_revision(),
        "hardware": hardware(),
        "torch": torch.__version__,
        "model": args.model,
        "k": args.k,
        "rows": rows,
        "profile": shares,
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    name = args.out / f"{report['date']}-scoring.md"
    name.write_text(markdown(report), encoding="utf-8")
    print(name.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
