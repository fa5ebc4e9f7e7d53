"""Whole jobs on a tiny random model: every way of running them gives the same tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ralm_engine.config import JobConfig
from ralm_engine.errors import InputError, RunError
from ralm_engine.jobs.plan import plan_job
from ralm_engine.jobs.score import run_job
from ralm_engine.store.rundir import RunDirectory
from ralm_engine.store.verify import verify_run

Job = Callable[..., JobConfig]

# Float32 sums in another order (batch shapes, threads): a few 1e-6 here, 1e-4 by contract.
TOLERANCE = 1e-4


def table(path: Path | str, name: str) -> pa.Table:
    return RunDirectory.open(path).tables(name).sort_by(
        [("stream_id", "ascending"), ("stride", "ascending")]
        + ([("rank", "ascending")] if name == "candidates" else [])
    )  # fmt: skip


def assert_same_tables(one: str, other: str) -> None:
    for name in ("strides", "candidates"):
        left, right = table(one, name), table(other, name)
        assert left.schema == right.schema
        assert left.num_rows == right.num_rows > 0
        for column in left.column_names:
            if pa.types.is_list(left.schema.field(column).type):
                a, b = (pa.compute.list_flatten(t[column]).to_numpy() for t in (left, right))
                if a.dtype == np.float32:
                    np.testing.assert_allclose(a, b, atol=TOLERANCE, rtol=0)
                else:
                    assert (a == b).mean() > 0.99  # ranks swap only where logits tie in rounding
            else:
                assert left[column].equals(right[column]), column


def test_a_run_is_whole_and_every_token_is_scored_once(job: Job) -> None:
    """Fails when a token lacks or doubles, or the summary's counts are not the text's."""
    cfg = job()
    outcome = run_job(cfg)
    assert outcome.failed == {}
    assert verify_run(cfg.run.out) == []
    text = Path(cfg.input.paths[0]).read_text(encoding="utf-8")
    strides = table(cfg.run.out, "strides")
    positions = np.concatenate(
        [
            np.arange(begin, begin + length)
            for begin, length in zip(
                strides["target_begin"].to_pylist(), strides["target_len"].to_pylist(), strict=True
            )
        ]
    )
    tokens = table_of_streams(cfg.run.out)["num_tokens"][0].as_py()
    assert np.array_equal(np.sort(positions), np.arange(1, tokens))
    summary = json.loads((Path(cfg.run.out) / "summary.json").read_text(encoding="utf-8"))
    assert summary["counts"]["tokens"] == tokens - 1
    assert summary["counts"]["words"] == len(text.split())
    assert summary["counts"]["spaces"] == text.count(" ")
    assert summary["counts"]["bytes"] == len(text.encode())
    assert summary["perplexity"]["oracle"]["token"] <= min(
        summary["perplexity"][name]["token"] for name in ("first", "logprob", "random")
    )
    assert (Path(cfg.run.out) / "report.html").stat().st_size > 10_000


def table_of_streams(path: str) -> pa.Table:
    return RunDirectory.open(path).tables("streams")


@pytest.mark.parametrize(
    "overrides",
    [
        ("run.shard_strides=3",),
        ("run.shard_strides=256",),
        ("batch.max_tokens=64",),
        ("batch.max_tokens=16384",),
        ("model.attention=reference",),
        ("model.attention=padded",),
    ],
    ids=lambda o: o[0],
)
def test_shards_batches_and_backends_do_not_change_the_tables(
    job: Job, overrides: tuple[str, ...]
) -> None:
    """Fails when a result depends on how the work was cut."""
    run_job(job(out="one"))
    run_job(job(*overrides, out="other"))
    assert_same_tables(job(out="one").run.out, job(out="other").run.out)


@pytest.mark.parametrize("warmup", ["reference", "none"])
def test_deterministic_runs_are_bit_identical_whatever_the_cut(job: Job, warmup: str) -> None:
    """Fails when a row's number depends on the rows beside it, or on where shards begin."""
    same = ("run.deterministic=true", f"window.warmup={warmup}", "input.limit_tokens=180")
    run_job(job(*same, out="one"))
    run_job(job(*same, "run.shard_strides=3", "batch.max_tokens=64", out="other"))
    for name in ("strides", "candidates"):
        one, other = (table(job(out=o).run.out, name) for o in ("one", "other"))
        assert one.equals(other)


def test_slack_changes_little_and_saves_rows(job: Job) -> None:
    """Fails when slack merges nothing, or a merged row lacks more context than it may."""
    slack = 16
    exact, merged = job(out="exact"), job(f"window.context_slack={slack}", out="merged")
    run_job(exact)
    run_job(merged)
    rows = [table_timing(cfg.run.out, "rows_forwarded") for cfg in (exact, merged)]
    assert rows[1] < 0.8 * rows[0]
    lost = (
        table(exact.run.out, "candidates")["context_len"].to_numpy()
        - table(merged.run.out, "candidates")["context_len"].to_numpy()
    )
    assert lost.min() >= 0
    assert 0 < lost.max() <= slack


def table_timing(path: str, column: str) -> int:
    return int(np.sum(RunDirectory.open(path).tables("timing")[column].to_numpy()))


def test_plan_of_a_small_job_is_what_the_run_did(job: Job) -> None:
    """Fails when plan and run lay rows out differently."""
    cfg = job()
    plan = plan_job(cfg)
    keys = {"rows", "tokens_asked", "tokens_forwarded", "flop", "seconds", "memory_bytes"}
    assert all(plan.as_dict()[key] > 0 for key in keys)
    run_job(cfg)
    for name in ("rows", "rows_forwarded", "tokens_asked", "tokens_forwarded", "batches"):
        assert getattr(plan, name) == table_timing(cfg.run.out, name)
    flop = float(np.sum(RunDirectory.open(cfg.run.out).tables("timing")["flop"].to_numpy()))
    assert plan.flop == pytest.approx(flop)


def test_a_finished_run_is_not_scored_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when the same command loads a model or scores a shard once more."""
    cfg = job()
    run_job(cfg)
    monkeypatch.setattr("ralm_engine.jobs.worker.WorkerSpec.shard_scorer", None)
    assert run_job(cfg).failed == {}


def test_a_changed_k_is_refused_and_named(job: Job) -> None:
    """Probe 28: fails when another job's tables could be mixed into a run."""
    run_job(job())
    with pytest.raises(InputError, match=r"retrieval\.k \(4 -> 3\)"):
        run_job(job("retrieval.k=3"))


def test_a_failing_shard_is_retried_then_reported_while_others_go_on(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when one bad shard ends the run, or is hidden."""
    from ralm_engine.ralm.score import ShardScorer

    tries = []
    score = ShardScorer.score

    def flaky(self: ShardScorer, shard: object) -> object:
        if shard.part == 1:
            tries.append(1)
            raise ValueError("bad luck")
        return score(self, shard)

    monkeypatch.setattr(ShardScorer, "score", flaky)
    outcome = run_job(job())
    assert len(tries) == 3
    assert outcome.failed == {1: "ValueError: bad luck"}
    assert outcome.summary is None
    assert 1 not in RunDirectory.open(job().run.out).committed()
    monkeypatch.setattr(ShardScorer, "score", score)
    assert run_job(job()).failed == {}
    assert verify_run(job().run.out) == []


def test_too_many_nonfinite_values_fail_the_run(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe 12: a poisoned model must not give a perplexity, and the tables stay readable."""
    from ralm_engine.lm import models

    load = models.load_model

    def poisoned(cfg: object) -> models.LoadedModel:
        import torch

        loaded = load(cfg)
        with torch.no_grad():
            loaded.model.get_output_embeddings().weight[5] = torch.inf
        return loaded

    monkeypatch.setattr(models, "load_model", poisoned)
    with pytest.raises(RunError, match="finite"):
        run_job(job())
    assert set(table(job().run.out, "strides")["status"].to_pylist()) == {"nonfinite"}


def test_documents_of_any_length(job: Job, tmp_path: Path) -> None:
    """Probes 1-4: empty, blank, one-token and window-edge documents in one run."""
    edge = range(63, 70)  # the window is 64; " Q" is one token of the fixture's tokenizer
    documents = ["", " ", "abc", *("Q" * n for n in edge), ""]
    file = tmp_path / "docs.jsonl"
    file.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(documents)),
        encoding="utf-8",
    )
    cfg = job(f"input.path={file}", "input.streams=document")
    assert run_job(cfg).failed == {}
    assert verify_run(cfg.run.out) == []
    streams = table_of_streams(cfg.run.out).to_pylist()
    assert set(edge) <= {s["num_tokens"] for s in streams}
    assert [s["status"] for s in streams if not s["num_tokens"]] == ["empty", "empty"]
    scored = {s["stream_id"]: 0 for s in streams}
    for line in table(cfg.run.out, "strides").to_pylist():
        scored[line["stream_id"]] += len(line["baseline_nll"])
    for stream in streams:
        assert scored[stream["stream_id"]] == max(0, stream["num_tokens"] - 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("window.max_length=129",), "max_length = 129 is above the model's 128"),
        (("window.max_passage_length=60",), "leaves 4 tokens beside a passage"),
        (("input.path=missing.txt",), "missing.txt"),
        (("model.name=./nowhere",), "nowhere"),
        (("model.name=no-such-model",), "cannot be loaded"),
        (("run.deterministic=true", "window.context_slack=4"), "exclude each other"),
    ],
)
def test_bad_jobs_give_one_line_before_any_work(
    job: Job, overrides: tuple[str, ...], message: str
) -> None:
    """Fails when a slip is found late, or its message names neither what nor where."""
    with pytest.raises(InputError) as caught:
        run_job(job(*overrides))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bos_stands_before_every_row_and_is_recorded(job: Job) -> None:
    """Probe 7: fails when BOS is added twice, never, or not written down."""
    cfg = job("window.bos=model")
    run_job(cfg)
    manifest = json.loads((Path(cfg.run.out) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["first_window"][0] == 0
    assert manifest["first_window"].count(0) == 1
    assert len(manifest["first_window"]) == cfg.window.max_length


def test_an_empty_index_scores_without_candidates(job: Job, tmp_path: Path) -> None:
    """Probes 18 and 26: no hit anywhere keeps the schema; every ranker equals no retrieval."""
    lone = tmp_path / "lone.jsonl"
    lone.write_text('{"id": "x", "title": "", "text": "zzzz"}\n', encoding="utf-8")
    cfg = job(f"passages.path={lone}", f"retrieval.index={tmp_path / 'index'}")
    summary = run_job(cfg).summary
    assert summary is not None
    assert table(cfg.run.out, "candidates").num_rows == 0
    values = {ranker: row["token"] for ranker, row in summary["perplexity"].items()}
    assert len(set(values.values())) == 1
