"""What chat and text completions share: the envelope of a response, and its events.

UsageCounter: token counts of one response.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from core.contract.messages import StepOutput
from core.text.tokenizer import Tokenizer
from schemas.errors import ErrorResponse
from schemas.logprobs import PromptLogprobs
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage
from server.http import sse
from server.http.errors import stream_error
from server.rendering.base import AnswerHead, weight_of
from server.rendering.logprobs import prompt_logprobs, token_names
from server.rendering.sliced import encoded_ids


@dataclass(slots=True)
class UsageCounter:
    """Sums tokens over the choices. Choice ``p * num_choices + j`` belongs to prompt ``p``.

    Each prompt and its cached tokens count once, however many choices it has. Both calls take the
    same time for any number of choices.
    """

    num_choices: int
    num_prompt_tokens: int
    _last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _num_output_tokens: int = 0
    _num_thinking_tokens: int = 0
    _num_cached_tokens: int = 0

    def count(self, index: int, output: StepOutput) -> None:
        """Take a choice's next output. Its counts are totals so far; an error has none."""
        if output.error is not None:
            return
        cached = output.num_cached_tokens if index % self.num_choices == 0 else 0
        counts = output.num_output_tokens, output.num_thinking_tokens, cached
        last = self._last.get(index, (0, 0, 0))
        self._last[index] = counts
        self._num_output_tokens += counts[0] - last[0]
        self._num_thinking_tokens += counts[1] - last[1]
        self._num_cached_tokens += counts[2] - last[2]

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=self._num_output_tokens,
            total_tokens=self.num_prompt_tokens + self._num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached_tokens),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=self._num_thinking_tokens
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One response: its head and prompts, and what it reports besides text.

    ``num_choices`` are generated per prompt. ``num_top`` is the number of alternatives per
    generated token, ``num_prompt_top`` per prompt token. None: no log-probabilities. ``warnings``
    are complete before the first output.
    """

    head: AnswerHead
    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    num_choices: int
    num_top: int | None = None
    num_prompt_top: int | None = None
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    warnings: Sequence[str] = ()

    @property
    def shown_warnings(self) -> list[str] | UnsetType:
        """``warnings`` of the end of an answer: absent if there are none."""
        return list(self.warnings) or UNSET


class EventRenderer:
    """Base of the renderers of both APIs: server-sent events, usage and errors.

    ``chunk_type`` is constructed from the head's fields, ``choices``, ``usage`` and others.
    """

    media_type: ClassVar[str] = sse.MEDIA_TYPE
    keep_alive: ClassVar[bytes] = sse.COMMENT

    def __init__(self, envelope: Envelope, chunk_type: Callable[..., msgspec.Struct]) -> None:
        self._envelope = envelope
        self._new_chunk = envelope.head.of(chunk_type)
        self._counter = UsageCounter(envelope.num_choices, sum(map(len, envelope.prompts)))
        self._name = token_names(envelope.tokenizer, as_ids=envelope.tokens_as_ids)
        self._continuous = envelope.include_usage and envelope.continuous_usage
        self._only_text_differs = not (
            envelope.num_top is not None or envelope.return_token_ids or self._continuous
        )
        """Whether chunks of one kind differ in text only, so that a template can make them."""
        self._templates: dict[Hashable, sse.Template] = {}

    def weight(self, _index: int, output: StepOutput) -> int:
        return weight_of(output)

    def begin(self) -> bytes:
        return b""

    def end(self) -> bytes:
        """The usage chunk if it was requested, and the end marker."""
        if not self._envelope.include_usage:
            return sse.DONE
        last = self._new_chunk(
            choices=[], usage=self._counter.usage(), warnings=self._envelope.shown_warnings
        )
        return sse.frame(last) + sse.DONE

    def error(self, message: str, _cause: Exception | None = None) -> bytes:
        """An error event and the end marker."""
        return sse.frame(ErrorResponse(error=stream_error(message))) + sse.DONE

    def _frame(self, choice: msgspec.Struct, **fields: Any) -> bytes:
        """The event of a chunk with this choice."""
        return sse.frame(self._new_chunk(choices=[choice], usage=self._usage_so_far(), **fields))

    def _filled(self, key: Hashable, text: str, frame_of: Callable[[str], bytes]) -> bytes:
        """``frame_of(text)`` from a template. Frames with equal ``key`` differ in text only."""
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = sse.Template(frame_of(sse.PLACEHOLDER))
        return template.fill(text)

    def _usage_so_far(self) -> Usage | UnsetType | None:
        """``usage`` of an ordinary chunk: absent, null, or the counts so far."""
        if not self._envelope.include_usage:
            return UNSET
        return self._counter.usage() if self._continuous else None

    def _total_usage(self, outputs: Sequence[StepOutput]) -> Usage:
        """``usage`` of a response that is not streamed."""
        for index, output in enumerate(outputs):
            self._counter.count(index, output)
        return self._counter.usage()

    def _token_ids(self, token_ids: Sequence[int]) -> list[int] | UnsetType:
        if not self._envelope.return_token_ids:
            return UNSET
        ids: list[int] = encoded_ids(token_ids)
        return ids

    def _prompt_logprobs(self, output: StepOutput) -> PromptLogprobs | UnsetType:
        num_top = self._envelope.num_prompt_top
        if num_top is None:
            return UNSET
        return prompt_logprobs(output.prompt_logprobs or (), self._envelope.tokenizer, num_top)


def stop_reason(output: StepOutput) -> str | int | UnsetType:
    """The stop string or stop token id. Absent if the model's own end token ended the output."""
    return UNSET if output.stop_reason is None else output.stop_reason
