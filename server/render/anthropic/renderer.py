"""MessageRenderer: answers of POST /v1/messages, streamed or whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from core.contract.messages import StepOutput
from schemas.anthropic_answer import (
    AnswerBlock,
    AnthropicMessage,
    MessageDelta,
    MessageEnd,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputTokensDetails,
    Ping,
    StopReason,
)
from server import sse
from server.anthropic_errors import anthropic_error
from server.errors import stream_error, to_api_error
from server.render.anthropic.blocks import BlockStream, whole_blocks
from server.render.anthropic.events import event
from server.render.base import weight_of
from server.render.chat_options import ChatOptions
from server.render.deltas import ChoiceDeltas
from server.render.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForm:
    """What a request decides about the form of its answer.

    ``max_tokens`` is the limit that was asked for; the context may have room for fewer.
    """

    max_tokens: int
    omits_thinking: bool = False


class MessageRenderer:
    """See Renderer. Event loop only. ``message_start`` waits for the first output's counts."""

    media_type: ClassVar[str] = sse.MEDIA_TYPE
    keep_alive: ClassVar[bytes] = event(Ping())

    def __init__(self, envelope: Envelope, options: ChatOptions, *, form: MessageForm) -> None:
        self._id = envelope.head.id
        self._model = envelope.head.model
        self._num_prompt_tokens = sum(map(len, envelope.prompts))
        self._form = form
        self._envelope = envelope
        self._deltas = ChoiceDeltas(options)
        self._blocks = BlockStream(omits_thinking=form.omits_thinking)
        self._has_begun = False

    def weight(self, _index: int, output: StepOutput) -> int:
        return weight_of(output)

    def begin(self) -> bytes:
        return b""

    def feed(self, _index: int, output: StepOutput) -> bytes:
        template = self._blocks.text_template
        if template is not None and self._deltas.is_plain and output.finish_reason is None:
            return template.fill(output.text) if output.text else b""
        pieces: list[bytes] = []
        if not self._has_begun:
            self._has_begun = True
            message = self._message([], output, num_output_tokens=0)
            pieces = [event(MessageStart(message=message)), self.keep_alive]
        pieces += [self._blocks.feed(delta) for delta in self._deltas.feed(output)]
        if output.finish_reason is not None:
            pieces.append(self._blocks.finish())
            end = MessageEnd(stop_reason=self._reason(output), stop_sequence=_sequence(output))
            usage = self._usage(output, output.num_output_tokens)
            warnings = self._envelope.shown_warnings
            pieces.append(event(MessageDelta(delta=end, usage=usage, warnings=warnings)))
        return b"".join(pieces)

    def end(self) -> bytes:
        return event(MessageStop())

    def error(self, message: str, cause: Exception | None = None) -> bytes:
        """The event that ends a stream with an error. Its type is that of the cause's status."""
        status = 500 if cause is None else to_api_error(cause).status
        return sse.named_frame("error", anthropic_error(status, stream_error(message)))

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        blocks = whole_blocks(self._deltas.feed(output), omits_thinking=self._form.omits_thinking)
        message = self._message(blocks, output, num_output_tokens=output.num_output_tokens)
        return msgspec.json.encode(
            msgspec.structs.replace(
                message,
                stop_reason=self._reason(output),
                stop_sequence=_sequence(output),
                warnings=self._envelope.shown_warnings,
            )
        )

    def _message(
        self, blocks: list[AnswerBlock], output: StepOutput, *, num_output_tokens: int
    ) -> AnthropicMessage:
        """The message before it has ended."""
        return AnthropicMessage(
            id=self._id,
            model=self._model,
            content=blocks,
            stop_reason=None,
            usage=self._usage(output, num_output_tokens),
        )

    def _reason(self, output: StepOutput) -> StopReason:
        """Why the message ended. A cut that nobody asked for is told apart from ``max_tokens``."""
        if output.finish_reason == "length":
            is_asked = output.num_output_tokens >= self._form.max_tokens
            return "max_tokens" if is_asked else "model_context_window_exceeded"
        if self._deltas.has_calls:
            return "tool_use"
        return "end_turn" if _sequence(output) is None else "stop_sequence"

    def _usage(self, output: StepOutput, num_output_tokens: int) -> MessageUsage:
        return MessageUsage(
            input_tokens=self._num_prompt_tokens - output.num_cached_tokens,
            cache_read_input_tokens=output.num_cached_tokens,
            output_tokens=num_output_tokens,
            output_tokens_details=OutputTokensDetails(
                thinking_tokens=output.num_thinking_tokens if num_output_tokens else 0
            ),
        )


def _sequence(output: StepOutput) -> str | None:
    """The stop sequence that ended the output."""
    return output.stop_reason if isinstance(output.stop_reason, str) else None
