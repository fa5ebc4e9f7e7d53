"""The [window] and [rank] sections of a job file. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ralm_engine.errors import InputError

Layout = Literal["document_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Which tokens a row may hold.

    Attributes:
        max_length: tokens per row, passage included.
        max_passage_length: passage tokens kept.
        warmup: `reference` scores the first max_length tokens in one plain pass, as the published
            code does; `none` retrieves from the first stride on.
        bos: `model` puts the model's BOS token before every row; `none` adds nothing.
        context_slack: left-context tokens that a row may lack so that strides can share it; 0 is
            exact.
    """

    max_length: int = 1024
    max_passage_length: int = 256
    warmup: Literal["reference", "none"] = "reference"
    bos: Literal["none", "model"] = "none"
    context_slack: int = 0

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise InputError(f"[window] max_length = {self.max_length} must be at least 2")
        if self.max_passage_length < 0:
            raise InputError(
                f"[window] max_passage_length = {self.max_passage_length} must not be negative"
            )
        if self.context_slack < 0:
            raise InputError(f"[window] context_slack = {self.context_slack} must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankConfig:
    """How candidates are ranked without looking at the target.

    Attributes:
        lookback: s', the last prefix tokens that the zero-shot ranker predicts; their NLLs are
            stored per token, so every shorter lookback comes from the same run.
        layout: layout of the ranking rows.
    """

    lookback: int = 16
    layout: Layout = "document_first"

    def __post_init__(self) -> None:
        if self.lookback < 1:
            raise InputError(f"[rank] lookback = {self.lookback} must be at least 1")
