"""The Responses API: stored responses, lists of items, tools in namespaces."""

from __future__ import annotations

from typing import Any

from compat_tests.support.api import Json
from compat_tests.support.http import encode
from tests.bystander.arena import Arena, attack

RESPONSES = "/v1/responses"


def response(arena: Arena, given: Any = "hi", **fields: Any) -> Json:
    return {"model": arena.server.model, "input": given, "max_output_tokens": 1} | fields


def item(text: str = "a") -> Json:
    return {"role": "user", "content": text}


@attack("2,000 stored responses, and conversations that grow with each", is_quick=True)
def stored(arena: Arena) -> None:
    """Each link of a chain is stored with the whole conversation before it."""
    arena.together(
        lambda number: arena.post(RESPONSES, response(arena, f"number {number}")),
        range(arena.amount(2000)),
    )
    last: Json = {}
    for _ in range(arena.amount(60, least=4)):
        body = response(arena, [item("b" * 900)] * 200, truncation="auto", **last)
        status, data = arena.post(RESPONSES, body)
        if status == 200:
            last = {"previous_response_id": field(data, b'"id":"resp_', b'"')}
    paths = [f"{RESPONSES}/{last.get('previous_response_id', 'x')}", f"{RESPONSES}/resp_none"]
    for path in paths * arena.amount(50):
        for more in ("", "/input_items?limit=100", "/input_items?after=msg_none"):
            arena.raw(get(arena, path + more), wait=5)


@attack("16,384 input items, 100,000, 16,384 parts, items of 8 MB")
def items(arena: Arena) -> None:
    least = 2000
    for num in (arena.amount(16_384, least=least), arena.amount(100_000, least=least)):
        arena.post(RESPONSES, response(arena, [item()] * num))
        arena.post(RESPONSES, response(arena, [item()] * num, truncation="auto"))
    part = {"type": "input_text", "text": "a"}
    arena.post(RESPONSES, response(arena, [{"role": "user", "content": [part] * least}]))
    reference = {"type": "item_reference", "id": "msg_none"}
    arena.post(RESPONSES, response(arena, [reference] * least))
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "a"}
    arena.post(RESPONSES, response(arena, [call, output] * (least // 2)))
    large = "x" * arena.amount(8_000_000)
    arena.post(RESPONSES, response(arena, [item("hi"), call, output | {"output": large}]))
    arena.post(RESPONSES, response(arena, [item("hi"), call | {"arguments": large}]))
    arena.post(RESPONSES, response(arena, [{"type": "reasoning", "encrypted_content": large}]))
    arena.post(RESPONSES, response(arena, instructions=large))


@attack("namespaces of 1,024 tools, 1,024 namespaces")
def namespaces(arena: Arena) -> None:
    function = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    for outer, inner in ((1, 1024), (1024, 1), (64, 64), (1024, 1024)):
        tools = [
            {
                "type": "namespace",
                "name": f"n{i}",
                "tools": [function | {"name": f"f{j}"} for j in range(inner)],
            }
            for i in range(outer)
        ]
        body = encode(response(arena, tools=tools, tool_choice="required"))
        arena.post(RESPONSES, body, timeout=60)


@attack("streams of responses whose senders leave")
def left(arena: Arena) -> None:
    body = response(arena, "Tell me a story.", max_output_tokens=1500, stream=True, store=True)
    arena.together(
        lambda number: arena.leave(RESPONSES, body, after=0.01 * (number % 30)),
        range(arena.amount(100)),
        width=32,
    )


def get(arena: Arena, path: str) -> bytes:
    host = f"{arena.server.host}:{arena.server.port}"
    return f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()


def field(data: bytes, start: bytes, end: bytes) -> str:
    """The text between two marks, with the id's prefix."""
    found = data.partition(start)[2].partition(end)[0]
    return f"resp_{found.decode()}"
