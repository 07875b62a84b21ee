"""All that crosses threads: commands into the core thread, outputs out of it. Frozen, plain data.

Every message is a msgspec Struct of numbers, strings and tuples, so that a process boundary
could be put where the thread boundary is without changing any of them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from core.contract.params import SamplingParams

FinishReason: TypeAlias = Literal["stop", "length"]
"""The only two truthful ends of a generation. Everything else is an error."""


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: one prompt, one generation. ``n=4`` is four of these.

    ``stream_interval`` is how many tokens go into one output after the first, which always
    leaves alone and at once; 0 means that only the end is reported. ``cache_salt`` keeps
    prefixes of different tenants apart.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    stream_interval: int = 1
    cache_salt: str = ""


class Add(msgspec.Struct, frozen=True):
    """Take this request."""

    request: EngineRequest


class Abort(msgspec.Struct, frozen=True):
    """Forget this request; nothing more is reported about it. Unknown ids are fine."""

    request_id: str


class Stop(msgspec.Struct, frozen=True):
    """End the core thread after the step under way."""


Command: TypeAlias = Add | Abort | Stop


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural-log probabilities at one position, from the model's raw distribution.

    ``logprob`` is None only for the first token of a prompt, which nothing precedes. ``top``
    holds (token id, log-probability) pairs in descending order. ``text_offset`` counts code
    points from the start of the generated text; for prompt tokens it is 0 and has no meaning.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    text_offset: int = 0


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one or more steps gave one request.

    ``text`` is complete UTF-8 that no stop string can still take back; ``thinking`` comes before
    it and is empty unless ``Thinking.is_separate`` is set. ``token_ids`` are the
    tokens sampled since the last output, whether or not their text is held back; ``logprobs``
    belong to the released text. Counts are totals so far. Exactly one output of a request has
    ``finish_reason`` or ``error``, and it is the last. ``stop_reason`` is the stop string or the
    stop token id that ended it, None for the model's own end token.
    """

    request_id: str
    text: str = ""
    thinking: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_thinking_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this request."""
        return self.finish_reason is not None or self.error is not None


def merge(first: StepOutput, second: StepOutput) -> StepOutput:
    """One output that says what two consecutive ones of the same request said."""
    assert first.request_id == second.request_id
    assert not first.is_last
    return StepOutput(
        request_id=first.request_id,
        text=first.text + second.text,
        thinking=first.thinking + second.thinking,
        token_ids=first.token_ids + second.token_ids,
        logprobs=first.logprobs + second.logprobs,
        prompt_logprobs=(
            first.prompt_logprobs if first.prompt_logprobs is not None else second.prompt_logprobs
        ),
        num_prompt_tokens=second.num_prompt_tokens or first.num_prompt_tokens,
        num_cached_tokens=second.num_cached_tokens or first.num_cached_tokens,
        num_output_tokens=second.num_output_tokens or first.num_output_tokens,
        num_thinking_tokens=second.num_thinking_tokens or first.num_thinking_tokens,
        finish_reason=second.finish_reason,
        stop_reason=second.stop_reason,
        error=second.error,
    )


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the engine after a step; the core thread replaces it, any thread reads it."""

    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0
    num_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_failed_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
