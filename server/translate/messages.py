"""Chat messages to the dictionaries that chat templates read."""

from __future__ import annotations

from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from core.text.content_forms import parts_of
from schemas.messages import (
    AssistantMessage,
    Content,
    DeveloperMessage,
    FilePart,
    FunctionMessage,
    ImageUrlPart,
    InputAudioPart,
    Message,
    RefusalPart,
    RequestToolCall,
    ThinkingPart,
    ToolMessage,
)


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Make null content empty, all parts text parts, and developer messages system ones.

    Agents replay what they got: a message of the assistant needs text, calls, reasoning, or at
    least an empty list of calls.

    Raises InvalidRequest naming the message, as ``messages[2].content``.
    """
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Message, path: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "role": "system" if isinstance(message, DeveloperMessage) else message.role,
        "content": _content(message.content, f"{path}.content"),
    }
    if message.name is not None:
        result["name"] = message.name
    match message:
        case AssistantMessage():
            _add_assistant_fields(result, message, path)
        case ToolMessage():
            result["tool_call_id"] = message.tool_call_id
        case FunctionMessage():
            result["role"] = "tool"
    return result


def _add_assistant_fields(result: dict[str, Any], message: AssistantMessage, path: str) -> None:
    calls, reasoning = message.tool_calls or [], message.reasoning_content or message.reasoning
    others = (
        message.tool_calls,
        message.function_call,
        message.refusal,
        message.reasoning_content,
        message.reasoning,
    )
    if message.content is None and all(other is None for other in others):
        raise InvalidRequest(
            f"'{path}' must have content, or calls.",
            param=f"{path}.content",
            code="missing_required_parameter",
        )
    if message.content is None and message.refusal:
        result["content"] = message.refusal
    if calls:
        result["tool_calls"] = [_tool_call(call) for call in calls]
    elif message.function_call is not None:
        function = {
            "name": message.function_call.name,
            "arguments": _arguments(message.function_call.arguments),
        }
        result["tool_calls"] = [{"type": "function", "function": function}]
    if reasoning:
        result["reasoning_content"] = result["reasoning"] = reasoning


def _tool_call(call: RequestToolCall) -> dict[str, Any]:
    function = call.function
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": function.name, "arguments": _arguments(function.arguments)},
    }


def _arguments(given: str | dict[str, Any] | None) -> dict[str, Any]:
    """Decode arguments, because templates need a mapping. Invalid ones in the history become {}."""
    if isinstance(given, dict):
        return given
    try:
        value = msgspec.json.decode(given or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _content(content: Content | None, path: str) -> str | list[dict[str, str]]:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for i, part in enumerate(content):
        match part:
            case str():
                texts.append(part)
            case ImageUrlPart() | InputAudioPart() | FilePart():
                raise InvalidRequest(
                    f"Invalid '{path}[{i}]': parts of type '{part.type}' are not supported; "
                    "this model reads text only.",
                    param=f"{path}[{i}].type",
                    code="unsupported_parameter",
                )
            case RefusalPart():
                texts.append(part.refusal)
            case ThinkingPart():
                continue
            case _:
                if part.type != "reasoning" and part.text is not None:
                    texts.append(part.text)
    return parts_of(texts)
