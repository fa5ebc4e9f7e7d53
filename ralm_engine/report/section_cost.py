"""Throughput and cost: planned against actual, and what sharing saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.report import markup, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """The `timing` table summed up. Seconds are of workers: two working at once count twice."""

    strides: int
    rows: int
    tokens_asked: int
    tokens_forwarded: int
    batches: int
    retrieve_seconds: float
    score_seconds: float
    flop: float
    workers: int

    @classmethod
    def of(cls, timing: pa.Table) -> Actual | None:
        """Totals over all shards; None where nothing was timed."""
        if not timing.num_rows:
            return None

        def total(name: str) -> Any:
            return pc.sum(timing[name]).as_py() or 0

        return cls(
            strides=total("num_strides"),
            rows=total("rows"),
            tokens_asked=total("tokens_asked"),
            tokens_forwarded=total("tokens_forwarded"),
            batches=total("batches"),
            retrieve_seconds=total("retrieve_seconds"),
            score_seconds=total("score_seconds"),
            flop=total("flop"),
            workers=pc.count_distinct(timing["worker"]).as_py(),
        )

    def rate(self, amount: float) -> float | None:
        """`amount` per second of scoring on one worker."""
        return amount / self.score_seconds if self.score_seconds > 0 else None

    @property
    def share_saved(self) -> float | None:
        """Share of the asked tokens that sharing spared the model."""
        return 1 - self.tokens_forwarded / self.tokens_asked if self.tokens_asked else None


def cost_section(manifest: Mapping[str, Any], actual: Actual | None) -> str:
    """Rates, the plan beside what happened, and hours of hardware."""
    if actual is None:
        body = markup.note("Nothing was timed in this run.")
    else:
        plan = manifest.get("plan")
        body = markup.facts(_rates(actual), kind="facts")
        body += _table(plan if isinstance(plan, Mapping) else {}, actual, manifest)
    return markup.section("cost", "Throughput and cost", body)


def _rates(actual: Actual) -> list[tuple[str, str]]:
    def per_second(amount: float, digits: int = 0) -> str:
        return numbers.fixed(actual.rate(amount), digits)

    return [
        ("Strides per second and worker", per_second(actual.strides, 2)),
        ("Tokens asked per second", per_second(actual.tokens_asked)),
        ("Tokens forwarded per second", per_second(actual.tokens_forwarded)),
        ("Share of tokens saved", numbers.percent(actual.share_saved, 1)),
        (
            "Tokens per forward pass",
            numbers.count(actual.tokens_forwarded / max(actual.batches, 1)),
        ),
        ("Estimated rate", numbers.scaled(actual.rate(actual.flop), "FLOP/s")),
    ]


def _table(plan: Mapping[str, Any], actual: Actual, manifest: Mapping[str, Any]) -> str:
    seconds = actual.score_seconds
    lines = [
        _line("Rows", plan.get("rows"), actual.rows, numbers.count),
        _line("Tokens asked", plan.get("tokens_asked"), actual.tokens_asked, numbers.count),
        _line("Tokens forwarded", plan.get("tokens_forwarded"), actual.tokens_forwarded,
              numbers.count),
        _line("Forward passes", plan.get("batches"), actual.batches, numbers.count),
        _line("Estimated work", plan.get("flop"), actual.flop, _flop),
        _line("Scoring time", plan.get("seconds"), seconds, numbers.duration),
        _line("Retrieval time", None, actual.retrieve_seconds, numbers.duration),
        _line(f"{_device(manifest)}-hours", _hours(plan.get("seconds")), seconds / 3600, _precise),
        _line("Memory", plan.get("memory_bytes"), manifest.get("peak_memory_bytes"), numbers.size),
    ]  # fmt: skip
    caption = (
        f"Planned before the run, and what {numbers.count(actual.workers)} "
        f"{'worker' if actual.workers == 1 else 'workers'} did. Times are summed over workers."
    )
    if isinstance(plan.get("sampled_strides"), int):
        caption += f" The plan laid out {numbers.count(plan['sampled_strides'])} strides."
    return markup.table(("", "planned", "actual", "actual / planned"), lines, caption=caption)


def _line(name: str, planned: Any, actual: Any, write: Any) -> tuple[str, str, str, str]:
    known = isinstance(planned, int | float) and isinstance(actual, int | float) and planned > 0
    ratio = numbers.fixed(actual / planned) if known else ""
    cells = [write(value) if value is not None else "" for value in (planned, actual)]
    return name, cells[0], cells[1], ratio


def _device(manifest: Mapping[str, Any]) -> str:
    sessions = manifest.get("sessions")
    last = sessions[-1] if isinstance(sessions, list) and sessions else {}
    return "GPU" if last.get("hardware", {}).get("gpus") else "CPU worker"


def _hours(seconds: Any) -> float | None:
    return seconds / 3600 if isinstance(seconds, int | float) else None


def _flop(value: float) -> str:
    return numbers.scaled(value, "FLOP")


def _precise(value: float) -> str:
    return numbers.fixed(value, 3)
