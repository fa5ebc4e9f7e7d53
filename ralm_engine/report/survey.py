"""A pass over all shards: what each ranker chose in every stride, and what that gained.

Legend: J strides of the run with a retrieval, S lines of one shard's `strides` table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ralm_engine.ralm.folds import BASELINE, ShardFold
from ralm_engine.report.selection import Float64Array, Int64Array
from ralm_engine.schema import WARMUP_STRIDE
from ralm_engine.store.rundir import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Where every stride of the run lies, what each ranker chose there, and its worth.

    A few numbers a stride: a million strides are some 60 MB.

    Attributes:
        part: shard of each stride [J].
        row: line of each stride in its shard's `strides` table [J].
        chosen: per ranker the chosen rank of each stride [J]; -1 is the baseline.
        gains: per ranker baseline NLL minus NLL with the choice, summed over the stride's targets
            [J]; NaN where the baseline is not finite.
        most_candidates: most candidates of a stride.
        most_targets: most targets of a stride.
    """

    part: Int64Array
    row: Int64Array
    chosen: Mapping[str, Int64Array]
    gains: Mapping[str, Float64Array]
    most_candidates: int
    most_targets: int

    @property
    def total(self) -> int:
        """J."""
        return len(self.part)


def survey_run(run: RunDirectory) -> Survey:
    """Reads every committed shard once, one at a time.

    Raises:
        InputError: a table is missing or damaged.
        RunError: the tables of a shard contradict each other.
    """
    found = [_survey_shard(run, part) for part in run.committed()]
    named = dict.fromkeys(name for one in found for name in one.chosen)
    rankers = sorted(named, key=_place)
    return Survey(
        part=_joined([one.part for one in found]),
        row=_joined([one.row for one in found]),
        # A shard without a ranker's column was not asked for it: the baseline stands, gaining 0.
        chosen={
            name: _joined([one.chosen.get(name, one.part * 0 + BASELINE) for one in found])
            for name in rankers
        },
        gains={
            name: np.concatenate([one.gains.get(name, one.part * 0.0) for one in found])
            for name in rankers
        },
        most_candidates=max((one.most_candidates for one in found), default=0),
        most_targets=max((one.most_targets for one in found), default=0),
    )


def _place(ranker: str) -> int:
    """`first` and `logprob` first, `oracle` last."""
    return {"first": 0, "logprob": 1, "oracle": 3}.get(ranker, 2)


def _survey_shard(run: RunDirectory, part: int) -> Survey:
    fold = ShardFold.of(run.shard("strides", part), run.shard("candidates", part))
    strides = fold.strides
    ranked = ["logprob"] if fold.candidates.has_rank_nll_C.any() else []
    chosen = fold.choose(["first", *ranked, *sorted(fold.candidates.rankers), "oracle"], seed=0)
    row = np.flatnonzero((strides.stride_S != WARMUP_STRIDE) & (strides.length_S > 0))
    base = np.where(strides.baseline_bad_S > 0, np.nan, strides.baseline_nll_S.astype(np.float64))
    nlls = {name: fold.nll(choice)[0].astype(np.float64) for name, choice in chosen.items()}
    return Survey(
        part=np.full(row.size, part, dtype=np.int64),
        row=row.astype(np.int64),
        chosen={name: choice[row] for name, choice in chosen.items()},
        gains={name: (base - nll)[row] for name, nll in nlls.items()},
        most_candidates=fold.usable_SK.shape[1],
        most_targets=int(strides.length_S[row].max(initial=0)),
    )


def _joined(arrays: list[Int64Array]) -> Int64Array:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
