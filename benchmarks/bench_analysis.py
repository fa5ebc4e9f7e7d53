"""Times `analyze_run` on a synthetic run of a million candidate lines. No GPU, no model.

python benchmarks/bench_analysis.py [--strides 62500] [--k 16] [--shard-strides 256]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from ralm_engine.ralm.analysis import analyze_run, write_summary
from ralm_engine.schema import CANDIDATES, STREAMS, STRIDES
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.store.verify import verify_run

STRIDE = 4
LOOKBACK = 16


def lists(values: np.ndarray, width: int, kind: pa.DataType) -> pa.ListArray:
    offsets = pa.array(np.arange(len(values) // width + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=kind)


def shard(rng: np.random.Generator, begin: int, count: int, k: int) -> dict[str, pa.Table]:
    """Strides begin..begin + count with k candidates each."""
    lines = count * k
    number = np.arange(begin, begin + count)
    strides = {
        "stream_id": pa.array(["stream"] * count),
        "stride": number,
        "target_begin": 1 + STRIDE * number,
        "target_len": np.full(count, STRIDE),
        "query_terms": np.full(count, 20),
        "retrieval_status": pa.array(["ok"] * count),
        "token_ids": lists(
            np.zeros(count * STRIDE, np.int32), STRIDE, STRIDES.field("token_ids").type
        ),
        "context_len": np.full(count, 900),
        "num_candidates": np.full(count, k),
        "status": pa.array(["ok"] * count),
    }
    candidates = {
        "stream_id": pa.array(["stream"] * lines),
        "stride": np.repeat(number, k),
        "rank": np.tile(np.arange(k), count),
        "passage": rng.integers(0, 800_000, lines),
        "score": rng.random(lines),
        "passage_len": np.full(lines, 130),
        "context_len": np.full(lines, 800),
        "duplicate_of": np.full(lines, -1),
        "status": pa.array(["ok"] * lines),
    }
    for name in ("baseline_nll", "baseline_entropy"):
        values = rng.exponential(3, count * STRIDE).astype(np.float32)
        strides[name] = lists(values, STRIDE, STRIDES.field(name).type)
    for name, width in (("target_nll", STRIDE), ("rank_nll", LOOKBACK)):
        values = rng.exponential(3, lines * width).astype(np.float32)
        candidates[name] = lists(values, width, CANDIDATES.field(name).type)
    return {"strides": pa.table(strides), "candidates": pa.table(candidates)}


def write(path: Path, num_strides: int, k: int, shard_strides: int) -> None:
    rng = np.random.default_rng(0)
    tokens = 1 + STRIDE * num_strides
    counts = {"num_tokens": tokens, "num_words": tokens, "num_spaces": tokens, "num_bytes": tokens}
    stream = {"stream_id": "stream", **counts, "status": "ok"}
    begins = range(0, num_strides, shard_strides)
    with RunDirectory.create_or_resume(
        path, identity={}, manifest={"num_shards": len(begins)}, config_toml=""
    ) as run:
        run.write_table("streams", pa.Table.from_pylist([stream], schema=STREAMS))
        for part, begin in enumerate(begins):
            count = min(shard_strides, num_strides - begin)
            run.commit_shard(part, shard(rng, begin, count, k))
        run.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strides", type=int, default=62_500)
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--shard-strides", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        seconds = {}
        for name, step in {
            "write": lambda: write(path, options.strides, options.k, options.shard_strides),
            "verify": lambda: print("problems:", verify_run(path)),
            "analyze": lambda: write_summary(RunDirectory.open(path), analyze_run(path)),
        }.items():
            begin = time.perf_counter()
            step()
            seconds[name] = time.perf_counter() - begin
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    lines = options.strides * options.k
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{lines:,} candidate lines, {size / 1e6:.0f} MB, {options.shard_strides} strides a shard"
    )
    for name, value in seconds.items():
        print(f"{name:8s} {value:6.2f} s  {lines / value / 1e6:6.2f} M lines/s")
    print(f"peak resident {peak:.0f} MiB")


if __name__ == "__main__":
    main()
