"""Conversations with tools for chat templates that show none.

The tools are listed in the system turn, earlier calls are text of the assistant, and their results
are turns of the user, so that a template sees nothing but the roles that all templates have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup
from core.text.content_forms import joined

_INTRODUCTION = """\
You may call functions. This is the list of them, one JSON object a line:
<tools>
{tools}
</tools>
To call a function, write its name and arguments in this form, once for each call:
{form}
The results come back between <tool_response> tags. Without need of a function, answer in plain \
text."""

Message = dict[str, Any]


def plain_turns(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    *,
    markup: CallMarkup,
    takes_system: bool,
) -> list[Message]:
    """The conversation in turns of system, user and assistant, with the tools in the first one.

    ``markup``, whose arguments are JSON, is the form of calls. Unless the template
    ``takes_system``, the list of tools begins the first turn of the user.
    """
    try:
        turns = _without_tools(messages, markup)
        introduction = _introduction(tools, markup) if tools else ""
    except RecursionError as error:
        raise InvalidRequest("messages are nested too deeply.", param="messages") from error
    return _with_introduction(turns, introduction, takes_system=takes_system)


def _introduction(tools: Sequence[Mapping[str, Any]], markup: CallMarkup) -> str:
    listed = "\n".join(_json(tool.get("function", tool)) for tool in tools)
    form = _calls_text([("FUNCTION", '{"ARGUMENT": VALUE}')], markup)
    return _INTRODUCTION.format(tools=listed, form=form)


def _with_introduction(
    turns: list[Message], introduction: str, *, takes_system: bool
) -> list[Message]:
    if not introduction:
        return turns
    role = "system" if takes_system else "user"
    if turns and turns[0]["role"] == role:
        first, *others = turns
        pieces = [joined(first["content"]), introduction]
        if not takes_system:
            pieces.reverse()
        return [first | {"content": "\n\n".join(filter(None, pieces))}, *others]
    return [{"role": role, "content": introduction}, *turns]


def _without_tools(messages: Sequence[Message], markup: CallMarkup) -> list[Message]:
    """Calls as text, results as turns of the user. Neighbours of results become one turn.

    Many templates demand that user and assistant take turns.
    """
    turns: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            turn = {"role": "user", "content": _result_text(joined(message["content"]))}
        else:
            turn = _with_calls_as_text(message, markup)
        joins = is_result or after_result
        if joins and turns and turns[-1]["role"] == turn["role"] == "user":
            pair = (turns[-1]["content"], turn["content"])
            turns[-1] = turns[-1] | {"content": "\n".join(map(joined, pair))}
        else:
            turns.append(turn)
        after_result = is_result
    return turns


def _with_calls_as_text(message: Message, markup: CallMarkup) -> Message:
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


def _result_text(content: str) -> str:
    return f"<tool_response>\n{content}\n</tool_response>"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
