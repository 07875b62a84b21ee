"""Chat messages to the dictionaries that chat templates read.

For a template that shows no tools these are listed in the system turn, earlier calls are text of
the assistant, and their results are turns of the user: all templates have these roles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup
from core.text.content_forms import joined, parts_of
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
    RequestFunctionCall,
    ThinkingPart,
    ToolMessage,
)
from server.http.errors import unsupported


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Make null content empty, all parts text parts, and developer messages system ones.

    Agents replay what they got: a message of the assistant needs text, calls, reasoning, or at
    least an empty list of calls. Raises InvalidRequest naming the field: ``messages[2].content``.
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
        result["tool_calls"] = [{"id": call.id, **_call(call.function)} for call in calls]
    elif message.function_call is not None:
        result["tool_calls"] = [_call(message.function_call)]
    if reasoning:
        result["reasoning_content"] = result["reasoning"] = reasoning


def _call(function: RequestFunctionCall) -> dict[str, Any]:
    arguments = _arguments(function.arguments)
    return {"type": "function", "function": {"name": function.name, "arguments": arguments}}


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
                raise unsupported(
                    f"{path}[{i}].type",
                    f"Invalid '{path}[{i}]': parts of type '{part.type}' are not supported; "
                    "this model reads text only.",
                )
            case RefusalPart():
                texts.append(part.refusal)
            case ThinkingPart():
                continue
            case _:
                if part.type != "reasoning" and part.text is not None:
                    texts.append(part.text)
    return parts_of(texts)


_INTRODUCTION = """\
You may call functions. This is the list of them, one JSON object a line:
<tools>
{tools}
</tools>
To call a function, write its name and arguments in this form, once for each call:
{form}
The results come back between <tool_response> tags. Without need of a function, answer in plain \
text."""

TemplateMessage = dict[str, Any]


def plain_turns(
    messages: Sequence[TemplateMessage],
    tools: Sequence[Mapping[str, Any]],
    *,
    markup: CallMarkup,
    takes_system: bool,
) -> list[TemplateMessage]:
    """The conversation in turns of system, user and assistant, with the tools in the first one.

    ``markup``, whose arguments are JSON, is the form of calls. Unless the template
    ``takes_system``, the list of tools begins the first turn of the user.
    """
    try:
        turns = _without_tools(messages, markup)
        listed = "\n".join(_json(tool.get("function", tool)) for tool in tools)
    except RecursionError as error:
        raise InvalidRequest("messages are nested too deeply.", param="messages") from error
    if not tools:
        return turns
    form = _calls_text([("FUNCTION", '{"ARGUMENT": VALUE}')], markup)
    introduction = _INTRODUCTION.format(tools=listed, form=form)
    role = "system" if takes_system else "user"
    if turns and turns[0]["role"] == role:
        first, *others = turns
        pieces = [joined(first["content"]), introduction]
        if not takes_system:
            pieces.reverse()
        return [first | {"content": "\n\n".join(filter(None, pieces))}, *others]
    return [{"role": role, "content": introduction}, *turns]


def _without_tools(
    messages: Sequence[TemplateMessage], markup: CallMarkup
) -> list[TemplateMessage]:
    """Calls as text, results as turns of the user. Neighbours of results become one turn.

    Many templates demand that user and assistant take turns.
    """
    turns: list[TemplateMessage] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            result = f"<tool_response>\n{joined(message['content'])}\n</tool_response>"
            turn = {"role": "user", "content": result}
        else:
            turn = _with_calls_as_text(message, markup)
        if (is_result or after_result) and turns and turns[-1]["role"] == turn["role"] == "user":
            pair = (turns[-1]["content"], turn["content"])
            turns[-1] = turns[-1] | {"content": "\n".join(map(joined, pair))}
        else:
            turns.append(turn)
        after_result = is_result
    return turns


def _with_calls_as_text(message: TemplateMessage, markup: CallMarkup) -> TemplateMessage:
    calls = message.get("tool_calls")
    if not calls:
        return message
    functions = [call["function"] for call in calls]
    text = _calls_text(
        [(_json(function["name"])[1:-1], _json(function["arguments"])) for function in functions],
        markup,
    )
    turn = {key: value for key, value in message.items() if key != "tool_calls"}
    return turn | {"content": "\n".join(filter(None, [joined(message["content"]), text]))}


def _calls_text(calls: Sequence[tuple[str, str]], markup: CallMarkup) -> str:
    """Calls of these names and arguments, as the markup writes them."""
    texts = [
        markup.before.replace("{name}", name) + arguments + markup.after
        for name, arguments in calls
    ]
    return markup.opening + markup.between.join(texts) + markup.closing


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
