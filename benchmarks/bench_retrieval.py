"""Queries a second of the native engine, Lucene, bm25s and tantivy, in one run on one machine.

    python benchmarks/bench_retrieval.py --work /tmp/bench            # the comparison
    python benchmarks/bench_retrieval.py --work /tmp/bench --growth   # the native engine's scaling

Wall clock and process time (all threads of the process) are both given: on a busy machine only the
second is comparable. Needs the extra `lucene` and the packages bm25s and tantivy for their rows.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from retrieval.corpus import Passages, strided_queries
from retrieval.engines import ENGINES, Engine, num_different

from ralm_engine.retrieval.native import NativeIndex

Results = list[list[tuple[int, float]]]
NUM_PASSAGES = 859_350


def timed(run: Callable[[], Results]) -> tuple[Results, float, float]:
    """(result, wall seconds, processor seconds)."""
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - processor


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def prepare(engine: Engine, passages: Passages, folder: Path) -> None:
    if not folder.exists():
        _, wall, processor = timed(lambda: engine.build(passages, folder, 2) or [])
        print(f"| {engine.name} build, 2 threads | {wall:.1f} s | {processor:.1f} s | "
              f"{folder_bytes(folder) / 1e6:.0f} MB |")  # fmt: skip
    engine.open(folder)


def measure(engine: Engine, name: str, queries: list[str], args: argparse.Namespace) -> Results:
    results: Results = []
    engine.search(queries[: args.warm_up], args.k, 1)
    for num_threads in (1, 2):
        rates = []
        for _ in range(args.repeats):
            results, wall, processor = timed(
                lambda n=num_threads: engine.search(queries, args.k, n)
            )
            rates.append((len(queries) / wall, len(queries) / processor))
        by_wall, by_processor = np.median(rates, axis=0)
        print(f"| {engine.name} {name}, {num_threads} threads | {by_wall:.0f}/s | "
              f"{by_processor:.0f} per processor-second | |", flush=True)  # fmt: skip
    return results


def compare(args: argparse.Namespace) -> None:
    passages = Passages(args.passages)
    queries = strided_queries(args.queries)
    shuffled = [queries[i] for i in np.random.default_rng(0).permutation(len(queries))]
    print("| engine | wall | processor | |\n| --- | --- | --- | --- |")
    found: dict[str, Results] = {}
    for name in args.engines.split(","):
        engine = ENGINES[name]()
        # Slow engines answer a part of the queries; the same for strided and shuffled.
        part = len(queries) if name == "native" else args.slow_queries
        prepare(engine, passages, args.work / f"{name}-{args.passages}")
        found[name] = measure(engine, "strided", queries[:part], args)
        measure(engine, "shuffled", shuffled[:part], args)
    for name in set(found) & {"lucene", "bm25s"}:
        ours = found["native"][: len(found[name])]
        swapped, different = num_different(ours, found[name])
        print(f"\nnative against {name}: {len(ours)} queries, {swapped} hits swapped between equal "
              f"scores, {different} different")  # fmt: skip


def time_search(
    index: NativeIndex, queries: list[str], k: int, warm_up: int
) -> tuple[float, float]:
    index.search(queries[:warm_up], k)
    _, wall, processor = timed(lambda: index.search(queries, k) and [])
    return wall, processor


def growth(args: argparse.Namespace) -> None:
    print("| passages | k | query tokens | queries/s | per processor-second | index MB | build s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for num_passages in (50_000, 200_000, NUM_PASSAGES, 4_000_000):
        folder = args.work / f"growth-{num_passages}"
        build = 0.0
        if not folder.exists():
            passages = Passages(num_passages)
            started = time.perf_counter()
            NativeIndex.build(passages, folder, num_threads=2)
            build = time.perf_counter() - started
            del passages
        settings = [(16, 32)]
        if num_passages == NUM_PASSAGES:
            settings += [(1, 32), (64, 32), (256, 32), (16, 8), (16, 16), (16, 64)]
        index = NativeIndex.open(folder)
        for k, query_length in settings:
            queries = strided_queries(args.queries, query_length=query_length)
            wall, processor = time_search(index, queries, k, args.warm_up)
            print(f"| {num_passages} | {k} | {query_length} | {len(queries) / wall:.0f} | "
                  f"{len(queries) / processor:.0f} | {folder_bytes(folder) / 1e6:.0f} | "
                  f"{build:.0f} |", flush=True)  # fmt: skip
        del index
        if num_passages > NUM_PASSAGES and not args.keep:
            shutil.rmtree(folder)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the indexes")
    parser.add_argument("--passages", type=int, default=NUM_PASSAGES)
    parser.add_argument("--queries", type=int, default=8000)
    parser.add_argument("--slow-queries", type=int, default=2000)
    parser.add_argument("--warm-up", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--engines", default="native,lucene,bm25s,tantivy")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the index of 4 million passages")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    (growth if args.growth else compare)(args)


if __name__ == "__main__":
    main()
