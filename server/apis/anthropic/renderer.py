"""MessageRenderer: answers of POST /v1/messages, streamed or whole.

Server-sent events with a name.

Deltas to content blocks: thinking, text and calls, in the order in which they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from core.contract.messages import StepOutput
from schemas.anthropic_answer import (
    AnswerBlock,
    AnswerText,
    AnswerThinking,
    AnswerToolUse,
    AnthropicEvent,
    AnthropicMessage,
    BlockChange,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageDelta,
    MessageEnd,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputTokensDetails,
    Ping,
    SignatureDelta,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from server.apis.anthropic.errors import anthropic_error
from server.apis.anthropic.thinking import SHOWN, signature_of
from server.http import sse
from server.http.errors import stream_error, to_api_error
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.rendering.base import Envelope, weight_of
from server.rendering.deltas import ChatOptions, ChoiceDeltas, arguments_object


def event(data: AnthropicEvent) -> bytes:
    """An event, whose name is its ``type``."""
    return sse.named_frame(data.type, data)


Kind: TypeAlias = Literal["thinking", "text", "call"]


class BlockStream:
    """The events of one message's blocks. Feed it every delta in order.

    ``omits_thinking``: the text of thinking is only in its signature.
    """

    __slots__ = ("_index", "_kind", "_omits_thinking", "_template", "_thinking")

    def __init__(self, *, omits_thinking: bool) -> None:
        self._omits_thinking = omits_thinking
        self._index = -1
        self._kind: Kind | None = None
        self._thinking: list[str] = []
        self._template: sse.Template | None = None

    @property
    def text_template(self) -> sse.Template | None:
        """Makes the events of more text, while a block of text is open."""
        return self._template

    def feed(self, delta: Delta) -> bytes:
        """The events of a delta."""
        match delta:
            case Content(text):
                return self._open("text", AnswerText(text="")) + self._text(text)
            case Reasoning(text):
                begin = self._open("thinking", AnswerThinking(thinking="", signature=""))
                if self._omits_thinking:
                    self._thinking.append(text)
                    return begin
                return begin + self._change(ThinkingDelta(thinking=text))
            case CallBegin():
                return self.finish() + self._open("call", _call(delta, {}))
            case CallArguments(_, text):
                return self._change(InputDelta(partial_json=text))

    def finish(self) -> bytes:
        """The end of the open block, if there is one."""
        if self._kind is None:
            return b""
        signature = b""
        if self._kind == "thinking":
            signature = self._change(SignatureDelta(signature=self._signature()))
        self._kind = self._template = None
        return signature + event(BlockStop(index=self._index))

    def _open(self, kind: Kind, block: AnswerBlock) -> bytes:
        """Go on with the open block, or begin a new one."""
        if self._kind == kind:
            return b""
        end = self.finish()
        self._kind = kind
        self._index += 1
        return end + event(BlockStart(index=self._index, content_block=block))

    def _text(self, text: str) -> bytes:
        if self._template is None:
            self._template = sse.Template(self._change(TextDelta(text=sse.PLACEHOLDER)))
        return self._template.fill(text)

    def _change(self, change: BlockChange) -> bytes:
        return event(BlockDelta(index=self._index, delta=change))

    def _signature(self) -> str:
        return signature_of("".join(self._thinking)) if self._omits_thinking else SHOWN


def whole_blocks(deltas: Iterable[Delta], *, omits_thinking: bool) -> list[AnswerBlock]:
    """The blocks that the deltas add up to; a stream of the same deltas has the same ones."""
    begun: list[tuple[Delta, list[str]]] = []
    for delta in deltas:
        is_call = isinstance(delta, CallBegin | CallArguments)
        if isinstance(delta, CallBegin):
            begun.append((delta, []))
        elif is_call or (begun and type(begun[-1][0]) is type(delta)):
            begun[-1][1].append(delta.text)
        else:
            begun.append((delta, [delta.text]))
    return [
        _block(first, "".join(pieces), omits_thinking=omits_thinking) for first, pieces in begun
    ]


def _block(first: Delta, text: str, *, omits_thinking: bool) -> AnswerBlock:
    match first:
        case Reasoning():
            if omits_thinking:
                return AnswerThinking(thinking="", signature=signature_of(text))
            return AnswerThinking(thinking=text, signature=SHOWN)
        case CallBegin():
            return _call(first, arguments_object(text))
        case _:
            return AnswerText(text=text)


def _call(begin: CallBegin, arguments: Any) -> AnswerToolUse:
    """A call whose id has Anthropic's form."""
    call_id = "toolu_" + begin.id.removeprefix("call_")
    return AnswerToolUse(id=call_id, name=begin.name, input=arguments)


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
