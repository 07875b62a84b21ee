"""Deltas to content blocks: thinking, text and calls, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from schemas.anthropic_answer import (
    AnswerBlock,
    AnswerText,
    AnswerThinking,
    AnswerToolUse,
    BlockChange,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from server import sse
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.render.anthropic.events import event
from server.render.arguments import arguments_object
from server.thinking_signatures import SHOWN, signature_of

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
