"""FunctionRenderer: chat completions whose call is in the older field ``function_call``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from core.contract.messages import StepOutput
from schemas.chat import ChatMessage, FinishReason
from schemas.chat_chunk import ChatDelta, FunctionCallDelta
from server.parsers.base import CallArguments, CallBegin, Delta
from server.render.chat import ChatRenderer
from server.render.deltas import ChoiceDeltas


class FunctionRenderer(ChatRenderer):
    """See Renderer. A choice has at most one call. Event loop only."""

    def _delta(self, delta: Delta) -> ChatDelta:
        match delta:
            case CallBegin(name=name):
                return ChatDelta(function_call=FunctionCallDelta(name=name, arguments=""))
            case CallArguments(text=text):
                return ChatDelta(function_call=FunctionCallDelta(arguments=text))
            case _:
                return super()._delta(delta)

    def _message(self, deltas: Iterable[Delta]) -> ChatMessage:
        message = super()._message(deltas)
        if message.tool_calls is UNSET:
            return message
        call = message.tool_calls[0].function
        return msgspec.structs.replace(message, tool_calls=UNSET, function_call=call)

    def _finish_reason(self, deltas: ChoiceDeltas, output: StepOutput) -> FinishReason:
        reason = super()._finish_reason(deltas, output)
        return "function_call" if reason == "tool_calls" else reason
