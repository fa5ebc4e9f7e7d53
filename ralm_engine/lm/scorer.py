"""Plan, then run: packed (or padded) forwards, and log-probabilities only where they are wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch

from ralm_engine.errors import InputError
from ralm_engine.lm.attention import PackedBackend, choose_backend
from ralm_engine.lm.config import AttentionBackend
from ralm_engine.lm.expressible import cannot_pack, check_head
from ralm_engine.lm.forward import packed_hidden, padded_hidden
from ralm_engine.lm.head import head_of
from ralm_engine.lm.models import LoadedModel
from ralm_engine.lm.packing import PackPlan, pack, pad
from ralm_engine.lm.requests import Requests, Scores

log = logging.getLogger(__name__)

NO_RANK = -1
"""Rank of a target whose logits are not finite."""

# On two AVX2 cores a LLaMA of SmolLM2 width ran 1.2 to 1.3 times faster in batches of 2,048 tokens
# than of 16,384: activations of 12 MB stay in a 32 MB cache, and the allocator reuses them instead
# of mapping fresh pages. A GPU wants what it is given.
CPU_BATCH_TOKENS = 2048


def token_budget(max_tokens: int, device: torch.device) -> int:
    """Tokens per forward pass on a device: [batch] max_tokens, or less where that is faster."""
    return min(max_tokens, CPU_BATCH_TOKENS) if device.type == "cpu" else max_tokens


class Scorer:
    """Answers requests with one frozen model.

    Args:
        loaded: the model.
        attention: backend of the packed attention, or `padded`.
        max_tokens: bound on the tokens of a forward pass, see `token_budget`.
        max_length: longest row that will be asked for, in tokens.
        one_row_per_batch: deterministic mode, see `packing.pack`.

    Raises:
        InputError: rows longer than the model's context, or a head it cannot take apart.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        attention: AttentionBackend = "auto",
        max_tokens: int = 16384,
        max_length: int = 1024,
        one_row_per_batch: bool = False,
    ) -> None:
        check_length(loaded.model.config.get_text_config(), max_length)
        self._loaded = loaded
        self._head = head_of(loaded)
        check_head(loaded, self._head)
        self._max_tokens = token_budget(max_tokens, loaded.device)
        self._one_row_per_batch = one_row_per_batch
        self._packed = _packed_backend(loaded, attention, max_length)

    @property
    def backend(self) -> str:
        """What computes attention: a packed backend's name, or `padded`."""
        return self._packed or "padded"

    def plan(self, requests: Requests) -> PackPlan:
        """Batches for `requests`; touches no device."""
        packer: Callable[..., PackPlan] = pack if self._packed else pad
        return packer(
            requests, max_tokens=self._max_tokens, one_row_per_batch=self._one_row_per_batch
        )

    def run(self, requests: Requests, plan: PackPlan) -> Scores:
        """Runs every batch of a plan. NaN and infinities are returned as they come."""
        nll = np.empty(requests.num_wants, dtype=np.float32)
        entropy = np.empty(requests.num_wants, dtype=np.float32)
        rank = np.empty(requests.num_wants, dtype=np.int32)
        for batch in plan.batches:
            with torch.inference_mode():
                hidden = (
                    packed_hidden(self._loaded, requests, batch, self._packed)
                    if self._packed
                    else padded_hidden(self._loaded, requests, batch)
                )
                target = torch.from_numpy(requests.target_W[batch.wants]).long()
                answer = self._head.log_probability(hidden, target.to(hidden.device))
            # sync: the one place per batch where results come back to the host.
            nll[batch.wants] = answer.nll.cpu().numpy()
            entropy[batch.wants] = answer.entropy.cpu().numpy()
            rank[batch.wants] = answer.rank.nan_to_num(nan=NO_RANK).int().cpu().numpy()
        return Scores(nll_W=nll, entropy_W=entropy, rank_W=rank)

    def score(self, requests: Requests) -> Scores:
        """Plans and runs."""
        return self.run(requests, self.plan(requests))


def check_length(config: object, max_length: int) -> None:
    """Refuses rows that the model's positions cannot hold.

    Raises:
        InputError: naming both lengths.
    """
    limit = getattr(config, "max_position_embeddings", None)
    if limit and max_length > limit:
        raise InputError(
            f"[window] max_length = {max_length} is above the model's {limit} positions",
            hint=f"set max_length = {limit} or less",
        )


def _packed_backend(
    loaded: LoadedModel, attention: AttentionBackend, max_length: int
) -> PackedBackend | None:
    if attention == "padded":
        return None
    reason = cannot_pack(loaded, max_length)
    if reason:
        log.warning("%s: rows run through padded batches, with the same numbers", reason)
        return None
    return choose_backend(attention, loaded.device)
