"""Conversations with tools."""

import json
from collections.abc import Callable

from training.corpus import tool_kit
from training.corpus.chat import Conversation, Exchange, Json, Message, assistant, system, user
from training.corpus.source import Source
from training.corpus.tool_kit import Tool, Use

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant with tools.",
    "Use the tools when they help.",
    "You can call tools.",
    "Help the user with the tools.",
)


def _calls(uses: list[Use]) -> Message:
    """The assistant message that calls the tools."""
    calls: list[Json] = [
        {"type": "function", "function": {"name": use.tool, "arguments": use.arguments}}
        for use in uses
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _distinct(source: Source, count: int) -> list[Tool]:
    """Random tools with different names."""
    found: dict[str, Tool] = {}
    while len(found) < count:
        tool = tool_kit.tool(source)
        found.setdefault(tool.name, tool)
    return list(found.values())


def _uses(source: Source, offered: list[Tool]) -> list[Use]:
    """Requests for one of the tools, sometimes for two at once."""
    count = 2 if len(offered) > 1 and source.chance(0.2) else 1
    return [tool.ask(source) for tool in source.sample(offered, count)]


def _request(source: Source, uses: list[Use]) -> str:
    """The user message that requests the calls."""
    joint = source.choice((" Then: ", " And: ", " Also: "))
    return joint.join(use.request for use in uses)


def _result(use: Use) -> Message:
    """The tool message with the result."""
    return {"role": "tool", "content": json.dumps(use.result, ensure_ascii=False)}


def conversation(source: Source, plain: Callable[[Source], Exchange]) -> Conversation:
    """A conversation with tools; ``plain`` makes exchanges that need no tool."""
    offered = _distinct(source, source.choice((1, 1, 1, 2, 2, 3, 4)))
    messages = [system(source.phrase(SYSTEMS))] if source.chance(0.4) else []
    rounds = source.choice((1, 1, 2, 3))
    skill = ""
    for index in range(rounds):
        if source.chance(0.2):
            exchange = plain(source)
            while exchange.skill == "arithmetic":
                exchange = plain(source)
            messages += [user(exchange.question), assistant(exchange.answer)]
            skill = "no tool"
            continue
        uses = _uses(source, offered)
        messages += [user(_request(source, uses)), _calls(uses)]
        skill = "tool" if len(uses) == 1 else "two tools"
        if index < rounds - 1 or source.chance(0.3):
            messages += [*map(_result, uses), assistant(" ".join(use.answer for use in uses))]
            skill = "tool result"
    return Conversation(skill, messages, [tool.schema for tool in offered])
