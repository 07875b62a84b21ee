"""The Messages API: huge blocks, thinking and its signatures, tools."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from compat_tests.support.api import Json
from compat_tests.support.http import encode
from tests.bystander.arena import Arena, attack

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"


def message(arena: Arena, content: Any = "hi", **fields: Any) -> Json:
    turns = [{"role": "user", "content": content}]
    return {"model": arena.server.model, "messages": turns, "max_tokens": 1} | fields


def both(arena: Arena, body: Json | bytes) -> None:
    """Ask for an answer, and for the number of tokens."""
    arena.post(MESSAGES, body, timeout=60)
    if isinstance(body, dict):
        counted = {name: value for name, value in body.items() if name != "max_tokens"}
        arena.post(COUNT, counted, timeout=60)


@attack("blocks of 8 MB, 16,384 blocks, results in results", is_quick=True)
def blocks(arena: Arena) -> None:
    large, many = "x" * arena.amount(8_000_000), arena.amount(16_384)
    text = {"type": "text", "text": "a"}
    both(arena, message(arena, large))
    both(arena, message(arena, [text] * many))
    both(arena, message(arena, system=[text] * many))
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text] * 100}
    both(arena, message(arena, [result] * (many // 100)))
    found = {"type": "search_result", "source": "s", "title": "t", "content": [text] * 100}
    both(arena, message(arena, [result | {"content": [found] * 16}] * 10))
    image = {"type": "image", "source": {"type": "base64", "data": large}}
    both(arena, message(arena, [image]))
    head = encode(message(arena))[:-1]
    use = b'{"type":"tool_use","id":"t","name":"f","input":' + b'{"a":' * 5000 + b"1" + b"}" * 5000
    both(arena, head + b',"messages":[{"role":"assistant","content":[' + use + b"}]}]}")


@attack("signatures of thinking that are bombs, broken, or many")
def signatures(arena: Arena) -> None:
    size = arena.amount(200_000_000, least=8_000_000)
    bomb = base64.urlsafe_b64encode(zlib.compress(b"\0" * size)).decode()
    block = {"type": "thinking", "thinking": "", "signature": f"roseinfer:{bomb}"}
    for signature in (block["signature"], "roseinfer:" + "A" * 1_000_000, "x" * 1_000_000):
        for num in (1, 20):
            turns = [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [block | {"signature": signature}] * num},
                {"role": "user", "content": "and?"},
            ]
            both(arena, message(arena) | {"messages": turns})
    redacted = {"type": "redacted_thinking", "data": "x" * arena.amount(8_000_000)}
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [redacted]}]
    both(arena, message(arena) | {"messages": turns})


@attack("thinking streams whose senders leave")
def left(arena: Arena) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = message(arena, "Why?", max_tokens=1500, stream=True, thinking=thinking)
    arena.together(
        lambda number: arena.leave(MESSAGES, body, after=0.01 * (number % 30)),
        range(arena.amount(100)),
        width=32,
    )


@attack("1,024 tools of 100 KB schemas, references to tools")
def tools(arena: Arena) -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(400)}}
    for num in (64, 1024):
        offered = [
            {"name": f"f{i}", "input_schema": schema, "defer_loading": i % 2 == 0}
            for i in range(num)
        ]
        both(arena, message(arena, tools=offered, tool_choice={"type": "any"}))
    reference = {"type": "tool_reference", "tool_name": "f0"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [reference] * 16_384}
    both(arena, message(arena, [result], tools=[{"name": "f0", "input_schema": {}}]))
