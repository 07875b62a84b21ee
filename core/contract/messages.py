"""Messages between threads: commands to the core thread, outputs from it. Frozen, plain data.

Every message is a msgspec Struct of numbers, strings and tuples, so it could also be sent to
another process.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from core.contract.params import SamplingParams

_NAN = array("d", [math.nan])

FinishReason: TypeAlias = Literal["stop", "length"]
"""Every other end of a generation is an error."""


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, one generation. ``n=4`` is four of these.

    ``stream_interval`` is the number of tokens per output. The first token is always an output of
    its own; 0 reports only the end. Requests share prefix cache blocks only if their
    ``cache_salt`` is equal. Tenants get equal shares of the engine when their requests wait. Of the
    waiting requests of one tenant, those with lower ``priority`` go first. A cross-encoder's prompt
    is a pair of texts, of which the second one starts at ``second_text_start``.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    stream_interval: int = 1
    cache_salt: str = ""
    tenant: str = ""
    priority: int = 0
    second_text_start: int | None = None


class Add(msgspec.Struct, frozen=True):
    """Add a request."""

    request: EngineRequest


class Abort(msgspec.Struct, frozen=True):
    """Drop a request; nothing more is reported about it. Unknown ids are ignored."""

    request_id: str


class Stop(msgspec.Struct, frozen=True):
    """Stop the core thread after the current step."""


Command: TypeAlias = Add | Abort | Stop


class SampledLogprob(msgspec.Struct, frozen=True, gc=False):
    """Natural-log probabilities at one position, from the raw distribution of the model.

    ``logprob`` is None only for the first token of a prompt. ``top``
    holds (token id, log-probability) pairs in descending order. ``text_offset`` counts code
    points from the start of the generated text; it is 0 for prompt tokens.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    text_offset: int = 0


class PromptLogprobs(msgspec.Struct, frozen=True):
    """A SampledLogprob of each of some consecutive prompt tokens, made when it is read.

    With 20 alternatives, a token is 330 bytes here and 2,200 bytes as objects.
    ``lines`` is float64 [num_tokens, 1 + 2 * num_top]: the token's own value (NaN: it has none),
    the best values, their token ids.
    """

    token_ids: tuple[int, ...] = ()
    lines: bytes = b""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, index: int) -> SampledLogprob:
        index = range(len(self))[index]
        size = self._line_size
        values = memoryview(self.lines)[index * size : (index + 1) * size].cast("d").tolist()
        if math.isnan(values[0]):
            return SampledLogprob(self.token_ids[index], None)
        num_top = len(values) // 2
        top = zip(map(int, values[1 + num_top :]), values[1 : 1 + num_top], strict=True)
        return SampledLogprob(self.token_ids[index], values[0], tuple(top))

    def __iter__(self) -> Iterator[SampledLogprob]:
        return map(self.__getitem__, range(len(self)))

    @property
    def _line_size(self) -> int:
        return len(self.lines) // len(self)

    def after(self, num_tokens: int) -> PromptLogprobs:
        """All but those of the first tokens."""
        if not num_tokens:
            return self
        lines = self.lines[num_tokens * self._line_size :]
        return PromptLogprobs(self.token_ids[num_tokens:], lines)


def whole_prompt(first_token_id: int, parts: Sequence[PromptLogprobs]) -> PromptLogprobs:
    """Join the parts. The first token of a prompt has no log-probability."""
    size = len(parts[0].lines) // len(parts[0]) if parts else _NAN.itemsize
    return PromptLogprobs(
        (first_token_id, *(token_id for part in parts for token_id in part.token_ids)),
        b"".join([_NAN.tobytes() * (size // _NAN.itemsize), *(part.lines for part in parts)]),
    )


CacheMissReason: TypeAlias = Literal[
    "never_seen",
    "evicted",
    "other_salt",
    "last_block",
    "window",
    "prompt_logprobs",
    "disabled",
]
"""Why a block of a prompt was not found in the prefix cache.

``never_seen``: no such block is known (or its eviction was long ago). ``other_salt``: one with the
same content is cached for requests of another ``cache_salt``. ``last_block``: all full blocks
before the last token were found. ``window``: layers with a sliding window have released what a
query needs. ``prompt_logprobs``: the request needs the logits of its whole prompt.
"""


class PrefixMiss(msgspec.Struct, frozen=True, gc=False):
    """The first block of a prompt that was not found in the prefix cache, and why."""

    reason: CacheMissReason
    block: int


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's work for one request until it ended, was dropped, or was asked about.

    Times are seconds of ``time.perf_counter()`` on this machine. ``until`` is the time of this
    message. ``waited`` are seconds between preemptions and the starts after them,
    ``waited_before_first`` those before the first token. ``num_steps`` are the engine's while it
    ran, ``num_rows`` the sum of the sequences in them, ``max_rows`` the most of them.
    """

    started_at: float | None = None
    first_token_at: float | None = None
    until: float
    waited: float = 0.0
    waited_before_first: float = 0.0
    num_steps: int = 0
    num_rows: int = 0
    max_rows: int = 0
    num_preemptions: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    miss: PrefixMiss | None = None


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output of one request since its last StepOutput.

    ``text`` is complete UTF-8 and final: no stop string can still match in it. ``thinking`` comes
    before it and is empty unless ``Thinking.is_separate`` is set. ``token_ids`` are all sampled
    tokens, including those whose text is held back; ``logprobs`` belong to ``text``. Counts are
    totals so far. Only the last output has ``finish_reason`` or ``error``. ``stop_reason`` is the
    stop string or stop token id that ended the request, None for the model's own EOS token.
    ``vector`` is what a model makes of the whole prompt if it does not generate: little-endian
    float32. ``is_invalid`` says that the error is the request's own and a repetition would fail
    too, ``is_retryable`` that it is not the request's own. ``work`` comes with the last output.
    """

    request_id: str
    text: str = ""
    thinking: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[SampledLogprob, ...] = ()
    prompt_logprobs: PromptLogprobs | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_thinking_tokens: int = 0
    vector: bytes = b""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    is_invalid: bool = False
    is_retryable: bool = False
    work: Work | None = None

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None or self.error is not None

    def after(self, work: Work | None) -> StepOutput:
        """The same output with the work that it ends."""
        return msgspec.structs.replace(self, work=work)


def merge(first: StepOutput, second: StepOutput) -> StepOutput:
    """Merge two consecutive outputs of one request into one."""
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
        vector=second.vector or first.vector,
        finish_reason=second.finish_reason,
        stop_reason=second.stop_reason,
        error=second.error,
        is_invalid=second.is_invalid,
        is_retryable=second.is_retryable,
        work=second.work,
    )


class EngineCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the engine after a step. The core thread replaces it; any thread reads it.

    Totals never go down. Prompt tokens, and the cached ones among them, count when the prompt has
    been computed; output tokens when they are sampled. ``num_aborts`` counts requests that were
    dropped before their end.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0
    num_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_aborts: int = 0
    num_failed_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
