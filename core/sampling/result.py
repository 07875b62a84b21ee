"""Results of one step for one sequence."""

from __future__ import annotations

import msgspec

from core.contract.messages import TokenLogprob


class SampledTokens(msgspec.Struct, frozen=True):
    """The tokens of one sequence in one step, and their raw log-probabilities if it asked.

    ``logprobs`` is aligned with ``token_ids``; its text offsets are 0 and set by whoever knows the
    text. ``failed`` means that this row's logits left nothing to choose from (not a number,
    infinite, or everything masked): there is no token, and the request must end in an error.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    failed: bool = False


class SequenceResult(msgspec.Struct, frozen=True):
    """Result of one step for one scheduled sequence.

    ``sampled`` is None until the last prompt token is computed. ``prompt_logprobs`` are the
    entries of the prompt positions that follow each token of this chunk.
    """

    sampled: SampledTokens | None
    prompt_logprobs: list[TokenLogprob]
