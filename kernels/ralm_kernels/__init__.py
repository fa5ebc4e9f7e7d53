"""Segment attention and token log-prob: Triton kernels and their plain-torch twins.

Segment attention has one module per backend, each with `prepare(plan)`, once a batch, and
`segment_attention(q, k, v, prepared, *, scale)`, once a layer: `reference` (dense mask, the
specification; no `prepare`), `cpu`, `triton_attention`, `flash`. Importing this package imports
torch and nothing else: triton and flash-attn come in with the modules that need them.
"""

from ralm_kernels.dispatch import token_logprob
from ralm_kernels.logprob import TokenLogprob
from ralm_kernels.merge import merge_into, merge_lse
from ralm_kernels.plan import SegmentPlan

__all__ = ["SegmentPlan", "TokenLogprob", "merge_into", "merge_lse", "token_logprob"]
