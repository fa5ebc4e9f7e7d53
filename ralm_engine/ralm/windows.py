"""Which stream tokens a row holds: the warm-up pass, the strides and the left cut (spec: windows).

All positions are token indices in one stream. A stream's first token is never scored, with or
without BOS, so that every policy has the same denominator.
"""

from __future__ import annotations

from dataclasses import dataclass

from ralm_engine.errors import InputError
from ralm_engine.ralm.config import WindowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of all streams of a job.

    Attributes:
        cfg: the [window] section.
        stride: s, target tokens per stride.
        lookback: s', ranked prefix tokens.
        num_bos: tokens that stand before every row (0 or 1).
    """

    cfg: WindowConfig
    stride: int
    lookback: int
    num_bos: int = 0

    def __post_init__(self) -> None:
        room = self.capacity - self.cfg.max_passage_length
        needed = self.stride + self.lookback + self.cfg.context_slack + 1
        if room < needed:
            raise InputError(
                f"[window] max_length = {self.cfg.max_length} leaves {room} tokens beside a passage"
                f" of {self.cfg.max_passage_length}; stride {self.stride}, lookback"
                f" {self.lookback} and context_slack {self.cfg.context_slack} need {needed}",
                hint="raise max_length or lower max_passage_length",
            )

    @property
    def capacity(self) -> int:
        """Row tokens left for passage and stream."""
        return self.cfg.max_length - self.num_bos

    def warmup_end(self, num_tokens: int) -> int:
        """Tokens of the stream that the warm-up pass covers; strides start there."""
        return min(num_tokens, self.capacity) if self.cfg.warmup == "reference" else 0

    def num_strides(self, num_tokens: int) -> int:
        """Strides of a stream; none where nothing can be scored."""
        rest = num_tokens - self.warmup_end(num_tokens)
        return 0 if num_tokens < 2 else -(-rest // self.stride)

    def span(self, stride: int, num_tokens: int) -> tuple[int, int]:
        """Prefix length t of a stride and the end of its targets."""
        t = self.warmup_end(num_tokens) + stride * self.stride
        return t, min(t + self.stride, num_tokens)

    def left_cut(self, t: int, passage_length: int) -> int:
        """First stream token c of the row: max(0, t + s - (max_length - |passage|))."""
        return max(0, t + self.stride - (self.capacity - passage_length))
