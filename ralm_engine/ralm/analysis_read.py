"""Reads a run into one line per stride: what each ranker chose, and the NLL that it got.

Legend: S strides of the run, K depths of the oracle, N streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ralm_engine.ralm.analysis_columns import (
    CandidateColumns,
    Floats,
    Ints,
    Lists,
    Mask,
    StrideColumns,
)
from ralm_engine.ralm.folds import BASE_RANKERS, LOOKBACKS, ShardFold, lookback_ranker
from ralm_engine.schema import WARMUP_STRIDE
from ralm_engine.store.rundir import RunDirectory

NO_RANK = np.iinfo(np.int32).max
"""Above every rank: the first usable rank of a stride that has none."""


@dataclass(slots=True)
class Tally:
    """Counts over all shards.

    Attributes:
        candidates: candidate lines.
        unusable: candidate lines that may not be chosen.
        duplicates: candidate lines with the text of a better ranked one.
        baseline_tokens, baseline_bad: baseline targets, and those that are NaN or infinite.
        candidate_tokens, candidate_bad: the same over the targets of all candidates.
        rank_nlls: candidate lines with a rank_nll.
        lookback: longest rank_nll.
        retrieval: strides per retrieval status, without warm-up passes.
    """

    candidates: int = 0
    unusable: int = 0
    duplicates: int = 0
    baseline_tokens: int = 0
    baseline_bad: int = 0
    candidate_tokens: int = 0
    candidate_bad: int = 0
    rank_nlls: int = 0
    lookback: int = 0
    retrieval: Counter[str] = field(default_factory=Counter)

    def add(self, shard: ShardFold) -> None:
        """Counts one shard."""
        strides, columns = shard.strides, shard.candidates
        self.candidates += columns.rank_C.size
        self.unusable += int(np.count_nonzero(~columns.usable_C))
        self.duplicates += int(np.count_nonzero(columns.duplicate_C))
        self.baseline_tokens += int(strides.length_S.sum())
        self.baseline_bad += int(strides.baseline_bad_S.sum())
        self.candidate_tokens += int(columns.target_len_C.sum())
        self.candidate_bad += int(columns.target_bad_C.sum())
        self.rank_nlls += int(np.count_nonzero(columns.has_rank_nll_C))
        self.lookback = max(self.lookback, int(columns.rank_nll.length.max(initial=0)))
        retrieved = strides.retrieval_status.filter(pa.array(strides.stride_S != WARMUP_STRIDE))
        for entry in pc.value_counts(retrieved).to_pylist():
            self.retrieval[entry["values"]] += entry["counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a ranker did. Each [S].

    Attributes:
        choice: rank chosen, or BASELINE.
        nll: NLL sum over the finite targets, float32.
        tokens: finite targets.
    """

    choice: Ints
    nll: Floats
    tokens: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Warm-up passes: token by token, as they have no candidates.

    Attributes:
        baseline: NLL of each token of each pass.
        stream: stream of each pass.
    """

    baseline: Lists
    stream: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFold:
    """A run, one line a stride (a warm-up pass is a line too).

    Attributes:
        stream_names: stream id of each code.
        stream_S: code of the stream.
        stride_S: stride number, or WARMUP_STRIDE.
        begin_S: token index of the first target.
        length_S: targets.
        entropy_S: mean baseline entropy.
        first_usable_S: lowest rank that may be chosen; as good as infinite without one.
        hits_S: candidates.
        score_S: retrieval score of rank 0; NaN without it.
        outcome: per ranker, `logprob@N` included.
        oracle_nll_SK: NLL sum under the oracle at depth 1..K.
        warmup: the warm-up passes.
        tally: counts.
    """

    stream_names: list[str]
    stream_S: Ints
    stride_S: Ints
    begin_S: Ints
    length_S: Ints
    entropy_S: Floats
    first_usable_S: Ints
    hits_S: Ints
    score_S: Floats
    outcome: dict[str, Outcome]
    oracle_nll_SK: Floats
    warmup: Warmup
    tally: Tally

    @property
    def rankers(self) -> list[str]:
        """The rankers of the run, without the lookback sweep."""
        return [name for name in self.outcome if "@" not in name]

    @property
    def lookbacks(self) -> list[tuple[int, str]]:
        """(length, ranker) for each lookback of the sweep, the longest one last."""
        if "logprob" not in self.outcome or not self.tally.lookback:
            return []
        shorter = [length for length in LOOKBACKS if length < self.tally.lookback]
        named = [(length, lookback_ranker(length)) for length in shorter]
        return [*named, (self.tally.lookback, "logprob")]

    @property
    def retrieved_S(self) -> Mask:
        """Strides with at least one candidate that may be chosen."""
        return self.first_usable_S < NO_RANK

    @property
    def num_depths(self) -> int:
        """K: the longest candidate list."""
        return self.oracle_nll_SK.shape[1] if self.tally.candidates else 0

    def oracle_at(self, depth: int) -> Outcome:
        """The oracle's outcome among the first `depth` candidates, without its choices."""
        has_one = self.first_usable_S < depth
        return Outcome(
            choice=np.empty(0, dtype=np.int32),
            nll=self.oracle_nll_SK[:, depth - 1],
            tokens=np.where(has_one, self.length_S, self.outcome["none"].tokens),
        )


def read_fold(run: RunDirectory, *, seed: int) -> RunFold:
    """Reads all committed shards of a run, one after the other.

    Memory: the largest shard, and per stride about 12 bytes a ranker and 4 a depth of the oracle.

    Args:
        run: finished or not.
        seed: of the ranker `random`.

    Raises:
        InputError: a file is missing or damaged.
        RunError: the tables contradict each other.
    """
    tally, names = Tally(), _Names()
    parts = []
    for part in run.committed():
        shard = ShardFold.of(
            run.shard("strides", part, columns=StrideColumns.COLUMNS),
            run.shard("candidates", part, columns=CandidateColumns.COLUMNS),
        )
        tally.add(shard)
        parts.append(_fold_shard(shard, names, tally, seed))
    if not parts:
        empty = (run.tables("strides"), run.tables("candidates"))
        parts.append(_fold_shard(ShardFold.of(*empty), names, tally, seed))
    return _join(parts)


@dataclass(slots=True)
class _Names:
    """Stream ids in the order of their first line, over all shards."""

    known: list[str] = field(default_factory=list)
    _codes: dict[str, int] = field(default_factory=dict)

    def codes(self, names: Iterable[str]) -> Ints:
        found = []
        for name in names:
            if name not in self._codes:
                self._codes[name] = len(self.known)
                self.known.append(name)
            found.append(self._codes[name])
        return np.array(found, dtype=np.int64)


def _fold_shard(shard: ShardFold, names: _Names, tally: Tally, seed: int) -> RunFold:
    strides, columns = shard.strides, shard.candidates
    sweep = [lookback_ranker(length) for length in LOOKBACKS]
    choices = shard.choose([*BASE_RANKERS, *sorted(columns.rankers), *sweep], seed=seed)
    outcome = {}
    for ranker, choice in choices.items():
        nll, tokens = shard.nll(choice)
        outcome[ranker] = Outcome(choice=choice.astype(np.int32), nll=nll, tokens=tokens)
    stream_S = names.codes(strides.stream_names)[strides.stream_S]
    warm = strides.stride_S == WARMUP_STRIDE
    first_S = (
        columns.spread(columns.score_C, fill=np.float32(np.nan))[:, 0]
        if columns.line_SK.shape[1]
        else np.full(stream_S.size, np.nan, dtype=np.float32)
    )
    return RunFold(
        stream_names=names.known,
        stream_S=stream_S,
        stride_S=strides.stride_S,
        begin_S=strides.begin_S,
        length_S=strides.length_S,
        entropy_S=strides.entropy_S,
        first_usable_S=_first_usable(shard.usable_SK),
        hits_S=np.count_nonzero(columns.line_SK >= 0, axis=1),
        score_S=first_S,
        outcome=outcome,
        oracle_nll_SK=shard.oracle_nll(),
        warmup=Warmup(baseline=strides.baseline.rows(warm), stream=stream_S[warm]),
        tally=tally,
    )


def _first_usable(usable_SK: Mask) -> Ints:
    if not usable_SK.shape[1]:
        return np.full(usable_SK.shape[0], NO_RANK, dtype=np.int32)
    first = np.where(usable_SK.any(axis=1), usable_SK.argmax(axis=1), NO_RANK)
    return first.astype(np.int32)


def _join(parts: Sequence[RunFold]) -> RunFold:
    tally = parts[0].tally
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (
            "stream_S",
            "stride_S",
            "begin_S",
            "length_S",
            "entropy_S",
            "first_usable_S",
            "hits_S",
            "score_S",
        )
    }
    known = dict.fromkeys(name for part in parts for name in part.outcome)
    if tally.candidates and not tally.rank_nlls:
        known = {name: None for name in known if not name.startswith("logprob")}
    depth = max(part.oracle_nll_SK.shape[1] for part in parts)
    return RunFold(
        stream_names=parts[0].stream_names,
        outcome={name: _join_outcome(parts, name) for name in known},
        oracle_nll_SK=np.concatenate([_deepened(part, depth) for part in parts]),
        warmup=_join_warmup([part.warmup for part in parts]),
        tally=tally,
        **joined,
    )


def _join_outcome(parts: Sequence[RunFold], ranker: str) -> Outcome:
    # A shard without this ranker's column was not asked for it: the baseline stands.
    found = [part.outcome.get(ranker, part.outcome["none"]) for part in parts]
    return Outcome(
        choice=np.concatenate([outcome.choice for outcome in found]),
        nll=np.concatenate([outcome.nll for outcome in found]),
        tokens=np.concatenate([outcome.tokens for outcome in found]),
    )


def _deepened(part: RunFold, depth: int) -> Floats:
    """The oracle's NLLs up to a depth that other shards have: beyond its own nothing changes."""
    own = part.oracle_nll_SK
    if own.shape[1] == 0:
        own = part.outcome["none"].nll[:, None]
    missing = max(depth - own.shape[1], 0)
    return np.pad(own, ((0, 0), (0, missing)), mode="edge")[:, :depth]


def _join_warmup(parts: Sequence[Warmup]) -> Warmup:
    # `Lists.rows` laid the values of each part end to end, so the lengths tell where rows begin.
    length = np.concatenate([part.baseline.length for part in parts])
    baseline = Lists(
        values_D=np.concatenate([part.baseline.values_D for part in parts]),
        begin=np.cumsum(length) - length,
        length=length,
    )
    return Warmup(baseline=baseline, stream=np.concatenate([part.stream for part in parts]))
