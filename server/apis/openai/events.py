"""EventRenderer: what the renderers of chat and text completions share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from core.contract.messages import StepOutput
from schemas.errors import ErrorResponse
from schemas.logprobs import PromptLogprobs
from schemas.usage import Usage
from server.http.errors import stream_error
from server.rendering import sse
from server.rendering.base import Envelope, Renderer, UsageCounter
from server.rendering.logprobs import encoded_ids, prompt_logprobs, token_names


class EventRenderer(Renderer):
    """Base of the renderers of chat and text completions: server-sent events, usage and errors.

    ``chunk_type`` is constructed from the head's fields, ``choices``, ``usage`` and others.
    """

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
        return encoded_ids(token_ids) if self._envelope.return_token_ids else UNSET

    def _prompt_logprobs(self, output: StepOutput) -> PromptLogprobs | UnsetType:
        num_top = self._envelope.num_prompt_top
        if num_top is None:
            return UNSET
        return prompt_logprobs(output.prompt_logprobs or (), self._envelope.tokenizer, num_top)


def stop_reason(output: StepOutput) -> str | int | UnsetType:
    """The stop string or stop token id. Absent if the model's own end token ended the output."""
    return UNSET if output.stop_reason is None else output.stop_reason
