"""MessageRenderer: answers of POST /v1/messages, streamed or whole.

Deltas become content blocks: thinking, text and calls, in the order in which they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

import msgspec

from core.contract.messages import StepOutput
from schemas import anthropic_answer as wire
from server.apis.anthropic.errors import anthropic_error
from server.apis.anthropic.thinking import SHOWN, signature_of
from server.http.errors import stream_error, to_api_error
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.rendering import sse
from server.rendering.base import ChatOptions, ChoiceDeltas, Envelope, Renderer, arguments_object


def event(data: wire.AnthropicEvent) -> bytes:
    return sse.named_frame(data.type, data)


class BlockStream:
    """The events of one message's blocks. Feed it every delta in order.

    ``omits_thinking``: the text of thinking is only in its signature.
    """

    def __init__(self, *, omits_thinking: bool) -> None:
        self._omits_thinking = omits_thinking
        self._index = -1
        self._kind: type[wire.AnswerBlock] | None = None
        self._thinking: list[str] = []
        self.text_template: sse.Template | None = None
        """Makes the events of more text, while a block of text is open."""

    def feed(self, delta: Delta) -> bytes:
        """The events of a delta."""
        match delta:
            case Content(text):
                begin = self._open(wire.AnswerText(text=""))
                if self.text_template is None:
                    change = wire.TextDelta(text=sse.PLACEHOLDER)
                    self.text_template = sse.Template(self._change(change))
                return begin + self.text_template.fill(text)
            case Reasoning(text):
                begin = self._open(wire.AnswerThinking(thinking="", signature=""))
                if self._omits_thinking:
                    self._thinking.append(text)
                    return begin
                return begin + self._change(wire.ThinkingDelta(thinking=text))
            case CallBegin():
                return self.finish() + self._open(_call(delta, {}))
            case CallArguments(_, text):
                return self._change(wire.InputDelta(partial_json=text))

    def finish(self) -> bytes:
        """The end of the open block, if there is one."""
        if self._kind is None:
            return b""
        signature = b""
        if self._kind is wire.AnswerThinking:
            kept = signature_of("".join(self._thinking)) if self._omits_thinking else SHOWN
            signature = self._change(wire.SignatureDelta(signature=kept))
        self._kind = self.text_template = None
        return signature + event(wire.BlockStop(index=self._index))

    def _open(self, block: wire.AnswerBlock) -> bytes:
        """Go on with the open block if it is of the same type, or begin this one."""
        if self._kind is type(block):
            return b""
        end = self.finish()
        self._kind = type(block)
        self._index += 1
        return end + event(wire.BlockStart(index=self._index, content_block=block))

    def _change(self, change: wire.BlockChange) -> bytes:
        return event(wire.BlockDelta(index=self._index, delta=change))


def _block_of(delta: Delta) -> object:
    """Equal for neighbouring deltas of one block."""
    return delta.index if isinstance(delta, CallBegin | CallArguments) else type(delta)


def _block(deltas: Sequence[Delta], *, omits_thinking: bool) -> wire.AnswerBlock:
    """The block that these deltas add up to. A stream of them has the same one."""
    text = "".join([delta.text for delta in deltas if not isinstance(delta, CallBegin)])
    match deltas[0]:
        case Reasoning():
            if omits_thinking:
                return wire.AnswerThinking(thinking="", signature=signature_of(text))
            return wire.AnswerThinking(thinking=text, signature=SHOWN)
        case CallBegin() as begin:
            return _call(begin, arguments_object(text))
        case _:
            return wire.AnswerText(text=text)


def _call(begin: CallBegin, arguments: Any) -> wire.AnswerToolUse:
    """A call whose id has Anthropic's form."""
    call_id = "toolu_" + begin.id.removeprefix("call_")
    return wire.AnswerToolUse(id=call_id, name=begin.name, input=arguments)


class MessageRenderer(Renderer):
    """Event loop only. ``message_start`` waits for the first output's counts.

    ``max_tokens`` is the limit that was asked for; the context may have room for fewer.
    """

    keep_alive: ClassVar[bytes] = event(wire.Ping())

    def __init__(
        self,
        envelope: Envelope,
        options: ChatOptions,
        *,
        max_tokens: int,
        omits_thinking: bool = False,
    ) -> None:
        self._envelope = envelope
        self._max_tokens, self._omits_thinking = max_tokens, omits_thinking
        self._deltas = ChoiceDeltas(options)
        self._blocks = BlockStream(omits_thinking=omits_thinking)
        self._has_begun = False

    def feed(self, _index: int, output: StepOutput) -> bytes:
        template = self._blocks.text_template
        if template is not None and self._deltas.is_plain and output.finish_reason is None:
            return template.fill(output.text) if output.text else b""
        pieces: list[bytes] = []
        if not self._has_begun:
            self._has_begun = True
            nothing = msgspec.structs.replace(output, num_output_tokens=0, num_thinking_tokens=0)
            message = self._message(nothing, [], stop_reason=None)
            pieces = [event(wire.MessageStart(message=message)), self.keep_alive]
        pieces += [self._blocks.feed(delta) for delta in self._deltas.feed(output)]
        if output.finish_reason is not None:
            pieces.append(self._blocks.finish())
            end = wire.MessageEnd(**self._end(output))
            usage, warnings = self._usage(output), self._envelope.shown_warnings
            pieces.append(event(wire.MessageDelta(delta=end, usage=usage, warnings=warnings)))
        return b"".join(pieces)

    def end(self) -> bytes:
        return event(wire.MessageStop())

    def error(self, message: str, cause: Exception | None = None) -> bytes:
        """The event that ends a stream with an error. Its type is that of the cause's status."""
        status = 500 if cause is None else to_api_error(cause).status
        return sse.named_frame("error", anthropic_error(status, stream_error(message)))

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        groups = groupby(self._deltas.feed(output), _block_of)
        message = self._message(
            output,
            [_block([*group], omits_thinking=self._omits_thinking) for _, group in groups],
            **self._end(output),
            warnings=self._envelope.shown_warnings,
        )
        return msgspec.json.encode(message)

    def _message(
        self, output: StepOutput, blocks: list[wire.AnswerBlock], **end: Any
    ) -> wire.AnthropicMessage:
        head, usage = self._envelope.head, self._usage(output)
        return wire.AnthropicMessage(
            id=head.id, model=head.model, content=blocks, usage=usage, **end
        )

    def _end(self, output: StepOutput) -> dict[str, Any]:
        """Why the message ended. A cut that nobody asked for is told apart from ``max_tokens``."""
        sequence = output.stop_reason if isinstance(output.stop_reason, str) else None
        reason: wire.StopReason = "end_turn" if sequence is None else "stop_sequence"
        if output.finish_reason == "length":
            is_asked = output.num_output_tokens >= self._max_tokens
            reason = "max_tokens" if is_asked else "model_context_window_exceeded"
        elif self._deltas.has_calls:
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": sequence}

    def _usage(self, output: StepOutput) -> wire.MessageUsage:
        num_prompt_tokens = sum(map(len, self._envelope.prompts))
        return wire.MessageUsage(
            input_tokens=num_prompt_tokens - output.num_cached_tokens,
            cache_read_input_tokens=output.num_cached_tokens,
            output_tokens=output.num_output_tokens,
            output_tokens_details=wire.OutputTokensDetails(
                thinking_tokens=output.num_thinking_tokens
            ),
        )
