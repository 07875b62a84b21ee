"""Ollama's messages to chat messages."""

from __future__ import annotations

from collections.abc import Sequence

from core.contract.errors import InvalidRequest
from schemas.messages import (
    AssistantMessage,
    Message,
    RequestFunctionCall,
    RequestToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from schemas.ollama import OllamaMessage
from server.translate.ollama.fields import refused


def chat_messages(messages: Sequence[OllamaMessage]) -> list[Message]:
    """Translate messages. Raises InvalidRequest naming one, as ``messages[2].images``.

    Calls and results that have no ids get some: a result belongs to the first call of its tool
    that has none yet.
    """
    pending: list[RequestToolCall] = []
    result: list[Message] = []
    for i, message in enumerate(messages):
        if message.images:
            raise refused(f"messages[{i}].images", "is not supported; this model reads text only.")
        content = message.content or ""
        match message.role:
            case "system":
                result.append(SystemMessage(content=content))
            case "user":
                result.append(UserMessage(content=content))
            case "assistant":
                calls = _calls(message, i)
                pending += calls
                result.append(
                    AssistantMessage(
                        content=content,
                        tool_calls=calls or None,
                        reasoning_content=message.thinking or None,
                    )
                )
            case "tool":
                call_id = message.tool_call_id or _take(pending, message.tool_name)
                name = message.tool_name
                result.append(ToolMessage(content=content, tool_call_id=call_id, name=name))
    return result


def _calls(message: OllamaMessage, index: int) -> list[RequestToolCall]:
    calls = []
    for j, call in enumerate(message.tool_calls or ()):
        arguments = bytes(call.function.arguments).strip()
        if not arguments.startswith(b"{"):
            path = f"messages[{index}].tool_calls[{j}].function.arguments"
            raise InvalidRequest(f"'{path}' must be an object.", param=path, code="invalid_type")
        function = RequestFunctionCall(name=call.function.name, arguments=arguments.decode())
        calls.append(RequestToolCall(id=call.id or f"call_{index}_{j}", function=function))
    return calls


def _take(pending: list[RequestToolCall], name: str | None) -> str:
    """The id of the call that a result belongs to; empty if there is none."""
    for call in pending:
        if name is None or call.function.name == name:
            pending.remove(call)
            return call.id
    return ""
