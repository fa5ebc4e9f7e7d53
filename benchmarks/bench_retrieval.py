"""Queries a second of the native engine, Lucene, bm25s and tantivy, in one run on one machine.

    python benchmarks/bench_retrieval.py --work /tmp/bench            # the comparison
    python benchmarks/bench_retrieval.py --work /tmp/bench --growth   # the native engine's scaling

Wall clock and process time (all threads of the process) are both given: on a busy machine only the
second is comparable. Needs the extras `lucene` and `bench`; an engine that is not installed is left
out with a line that says so. Indexes already in --work are reused. The tables also go to
benchmarks/results, dated.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from retrieval.corpus import Passages, strided_queries
from retrieval.engines import ENGINES, Engine, Native, num_different

from ralm_engine.errors import MissingDependencyError
from ralm_engine.jobs.prepare import hardware
from ralm_engine.jobs.revision import code_revision
from ralm_engine.retrieval.native import NativeIndex

T = TypeVar("T")
Results = list[list[tuple[int, float]]]
NUM_PASSAGES = 859_350
GROWTH_SIZES = (50_000, 200_000, NUM_PASSAGES)
LARGEST = 4_000_000
# (k, query tokens): varied one at a time, at the size of the shared passages.
BASE_SETTING = (16, 32)
SETTINGS = [(1, 32), (64, 32), (256, 32), (16, 8), (16, 16), (16, 64)]
THREADS = (1, 2)


@dataclass(slots=True)
class Report:
    """What is printed and, at the end, written."""

    title: str
    command: str
    lines: list[str] = field(default_factory=list)

    def add(self, line: str = "") -> None:
        self.lines.append(line)
        print(line, flush=True)

    def row(self, *cells: object) -> None:
        self.add("| " + " | ".join(map(str, cells)) + " |")

    def header(self, *names: str) -> None:
        self.row(*names)
        self.row(*["---"] * len(names))

    def write(self, folder: Path, name: str) -> Path:
        machine = hardware()
        about = (
            f"{machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_bytes'] / 1e9:.0f} GB, commit {code_revision()}; `{self.command}`"
        )
        folder.mkdir(parents=True, exist_ok=True)
        day = time.strftime("%Y-%m-%d")
        path = folder / f"{day}-{name}.md"
        text = "\n".join([f"# {self.title}, {day}", "", about, "", *self.lines])
        path.write_text(text + "\n", encoding="utf-8")
        return path


def timed(run: Callable[[], T]) -> tuple[T, float, float]:
    """(result, wall seconds, processor seconds)."""
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - processor


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def prepare(engine: Engine, passages: Passages, folder: Path, report: Report) -> None:
    """Builds under another name first: a run that was stopped leaves no half index to reuse."""
    if not folder.exists():
        aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        _, wall, processor = timed(lambda: engine.build(passages, aside, 2))
        aside.rename(folder)
        size = f"{folder_bytes(folder) / 1e6:.0f} MB"
        report.row(engine.name, "build", 2, f"{wall:.1f} s", f"{processor:.1f} s",
                   f"{processor / wall:.2f}", size)  # fmt: skip
    engine.open(folder)


def measure(
    engine: Engine, order: str, queries: list[str], args: argparse.Namespace, report: Report
) -> Results:
    results: Results = []
    for num_threads in THREADS[: engine.max_threads]:
        rates = []
        for _ in range(args.repeats):
            results, wall, processor = timed(partial(engine.search, queries, args.k, num_threads))
            rates.append((len(queries) / wall, len(queries) / processor, processor / wall))
        by_wall, by_processor, cores = np.median(rates, axis=0)
        report.row(
            engine.name, order, num_threads, f"{by_wall:.0f}/s", f"{by_processor:.0f}/s",
            f"{cores:.2f}", f"{len(queries)} queries",
        )  # fmt: skip
    return results


def compare(args: argparse.Namespace, report: Report) -> None:
    passages = Passages(args.passages)
    queries = strided_queries(args.queries)
    slow, shuffled = queries[: args.slow_queries], {}
    for part in (queries, slow):
        order = np.random.default_rng(0).permutation(len(part))
        shuffled[len(part)] = [part[i] for i in order]
    report.add(f"{passages.num_passages} passages, k = {args.k}, medians of {args.repeats}\n")
    report.add("Cores: processor time over wall time, what the machine really gave.\n")
    report.header("engine", "what", "threads", "wall", "processor", "cores", "size")
    found: dict[str, Results] = {}
    missing = []
    for name in args.engines.split(","):
        try:
            engine = ENGINES[name]()
            prepare(engine, passages, args.work / f"{name}-{args.passages}", report)
        except (MissingDependencyError, ImportError) as error:
            missing.append(f"{name} left out: {error}")
            continue
        # Slow engines answer a part of the queries.
        part = queries if name == "native" else slow
        # Once a thread count: the native engine's decoded lists belong to one of them.
        for num_threads in THREADS[: engine.max_threads]:
            engine.search(queries[: engine.warm_up], args.k, num_threads)
        found[name] = measure(engine, "strided", part, args, report)
        measure(engine, "shuffled", shuffled[len(part)], args, report)
    for line in missing:
        report.add(f"\n{line}")
    for name in [n for n in ("lucene", "bm25s") if n in found and "native" in found]:
        ours = found["native"][: len(found[name])]
        swapped, different = num_different(ours, found[name])
        report.add(
            f"\nnative against {name}: {len(ours)} queries, {swapped} hits swapped between equal "
            f"scores, {different} different"
        )
    if "bm25s" in found:
        report.add("bm25s scores with exact lengths where Lucene rounds them to a byte.")


def build_for_growth(num_passages: int, folder: Path) -> str:
    """Build seconds, or a dash where the index was there."""
    if folder.exists():
        return "-"
    passages = Passages(num_passages)
    _, wall, _ = timed(lambda: NativeIndex.build(passages, folder, num_threads=2))
    return f"{wall:.1f}"


def growth(args: argparse.Namespace, report: Report) -> None:
    sizes = [min(size, args.passages) for size in GROWTH_SIZES] + [LARGEST] * args.largest
    queries = {
        length: strided_queries(args.queries, query_length=length)
        for length in sorted({length for _, length in [BASE_SETTING, *SETTINGS]})
    }
    report.add(f"{args.queries} strided queries, one thread\n")
    report.header(
        "passages", "k", "query tokens", "queries/s", "per processor-second", "index MB", "build s"
    )
    for num_passages in sorted(set(sizes)):
        folder = args.work / f"growth-{num_passages}"
        build = build_for_growth(num_passages, folder)
        index = NativeIndex.open(folder)
        at_full = num_passages == min(NUM_PASSAGES, args.passages)
        for k, length in [BASE_SETTING, *SETTINGS] if at_full else [BASE_SETTING]:
            index.search(queries[length][: Native.warm_up], k)
            _, wall, processor = timed(partial(index.search, queries[length], k))
            report.row(
                num_passages, k, length, f"{args.queries / wall:.0f}",
                f"{args.queries / processor:.0f}", f"{folder_bytes(folder) / 1e6:.0f}", build,
            )  # fmt: skip
        del index
        if num_passages == LARGEST and not args.keep:
            shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    report.add(f"\npeak memory {peak:.1f} GB, the passages' texts included")


def command_line(args: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """What to type to repeat the run; folders are the caller's own and left out."""
    changed = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in vars(args).items()
        if name not in ("work", "out") and value != parser.get_default(name)
    ]
    return " ".join(["python benchmarks/bench_retrieval.py --work WORK", *changed])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the indexes")
    parser.add_argument("--passages", type=int, default=NUM_PASSAGES, help="passages at most")
    parser.add_argument("--queries", type=int, default=8000)
    parser.add_argument("--slow-queries", type=int, default=500, help="for all but native")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--largest", action="store_true", help="growth to 4 million passages")
    parser.add_argument("--keep", action="store_true", help="keep the index of 4 million passages")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    title = "Native retrieval, growth" if args.growth else "Retrieval, four engines"
    report = Report(title, command_line(args, parser))
    try:
        (growth if args.growth else compare)(args, report)
    except BaseException:
        report.add("\nIncomplete: the run was stopped here.")
        raise
    finally:
        print(report.write(args.out, "retrieval-growth" if args.growth else "retrieval"))


if __name__ == "__main__":
    main()
