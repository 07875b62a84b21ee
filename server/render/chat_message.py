"""Parser deltas to OpenAI's deltas and messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec import UNSET

from schemas.chat import ChatMessage
from schemas.chat_chunk import ChatDelta, FunctionCallDelta, ToolCallDelta
from schemas.tools import FunctionCall, ToolCall
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.parsers.message import fold


def chat_delta(delta: Delta) -> ChatDelta:
    """One delta of a stream. Reasoning gets both field names that clients read."""
    match delta:
        case Content(text):
            return ChatDelta(content=text)
        case Reasoning(text):
            return ChatDelta(reasoning_content=text, reasoning=text)
        case CallBegin(index, call_id, name):
            function = FunctionCallDelta(name=name, arguments="")
            call = ToolCallDelta(index=index, id=call_id, type="function", function=function)
            return ChatDelta(tool_calls=[call])
        case CallArguments(index, text):
            function = FunctionCallDelta(arguments=text)
            return ChatDelta(tool_calls=[ToolCallDelta(index=index, function=function)])
        case _:
            assert_never(delta)


def chat_message(deltas: Iterable[Delta]) -> ChatMessage:
    """The message of a response that is not streamed."""
    message = fold(deltas)
    calls = [
        ToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
        for call in message.calls
    ]
    return ChatMessage(
        role="assistant",
        content=message.content,
        reasoning_content=message.reasoning or UNSET,
        reasoning=message.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
