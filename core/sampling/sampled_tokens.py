"""SampledTokens: what the sampler gives one sequence in one step."""

from __future__ import annotations

import msgspec

from core.contract.messages import TokenLogprob


class SampledTokens(msgspec.Struct, frozen=True):
    """The tokens of one sequence in one step, and their raw log-probabilities if it asked.

    ``logprobs`` is aligned with ``token_ids``; its text offsets are 0 and set by whoever knows the
    text. ``failed`` means that this row's logits left nothing to choose from (not a number,
    infinite, or everything masked): there is no token, and the request must end in an error.
    ``was_late`` means that the token was chosen on the host, after another had stood in for it on
    the device: what was computed from that one meanwhile is worth nothing.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    failed: bool = False
    was_late: bool = False
