"""Segment attention and token log-prob: plain-torch twins, and Triton kernels where there are any.

Importing this package imports torch and nothing else; `ralm_kernels.triton_attention` and
`ralm_kernels.triton_logprob` need triton and are imported by who asks for them.
"""

from ralm_kernels.logprob import TokenLogprob, token_logprob
from ralm_kernels.merge import merge_into, merge_lse
from ralm_kernels.plan import SegmentPlan

__all__ = ["SegmentPlan", "TokenLogprob", "merge_into", "merge_lse", "token_logprob"]
