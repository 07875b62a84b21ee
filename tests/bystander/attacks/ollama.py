"""Ollama's API: /api/chat, /api/generate and what is beside them."""

from __future__ import annotations

from typing import Any

from compat_tests.support.api import Json, user
from compat_tests.support.http import encode
from schemas.limits import MAX_COMMAS
from tests.bystander.arena import Arena, attack

CHAT, GENERATE = "/api/chat", "/api/generate"
FEW = {"num_predict": 1}


def chat(arena: Arena, content: Any = "hi", **fields: Any) -> Json:
    body = {"model": arena.server.model, "messages": user(content), "stream": False}
    return body | {"options": FEW} | fields


def prompt(arena: Arena, text: str = "hi", **fields: Any) -> Json:
    return {"model": arena.server.model, "prompt": text, "stream": False, "options": FEW} | fields


@attack("Ollama: prompts of 8 MB, a context of millions, 4,096 messages", is_quick=True)
def large(arena: Arena) -> None:
    text = "lorem ipsum dolor sit amet " * arena.amount(300_000)
    for body in (prompt(arena, text), prompt(arena, text, raw=True), prompt(arena, system=text)):
        arena.post(GENERATE, body, timeout=60)
    arena.post(GENERATE, prompt(arena, "a", suffix=text), timeout=60)
    ids = b"5," * arena.amount(MAX_COMMAS) + b"5"
    arena.post(GENERATE, encode(prompt(arena))[:-1] + b',"context":[' + ids + b"]}", timeout=60)
    arena.post(CHAT, chat(arena, text), timeout=60)
    one = {"role": "user", "content": "a"}
    for num in (4096, arena.amount(100_000, least=5000)):
        arena.post(CHAT, chat(arena) | {"messages": [one] * num}, timeout=60)
    call = {"function": {"name": "f", "arguments": {"a": text}}}
    turns = [one, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "1"}]
    arena.post(CHAT, chat(arena) | {"messages": turns}, timeout=60)
    arena.post(CHAT, chat(arena) | {"messages": [one | {"images": [text]}]}, timeout=60)


@attack("Ollama: hostile formats, tools and options")
def formats(arena: Arena) -> None:
    double: Json = {"type": "integer"}
    for _ in range(16):
        double = {"allOf": [double, double]}
    for number in range(arena.amount(3)):
        step = 499_979 - number - 100 * arena.number
        for schema in (double, {"type": "integer", "multipleOf": step}):
            arena.post(CHAT, chat(arena, format=schema), timeout=60)
            arena.leave(GENERATE, prompt(arena, format=schema), after=0.1)
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    offered = [{"type": "function", "function": function}] * 1024
    arena.post(CHAT, chat(arena, tools=offered), timeout=60)
    arena.post(CHAT, chat(arena, tools=offered * 10), timeout=60)
    for options in ({"stop": ["s"] * 100_000}, {"num_ctx": 2**62}, {"num_predict": 2**62}):
        arena.leave(CHAT, chat(arena, options=options), after=0.3)
    arena.post(CHAT, chat(arena, keep_alive="9" * 1000))


@attack("Ollama: streams without a limit whose senders leave")
def left(arena: Arena) -> None:
    endless = {"num_predict": -1}
    chats = chat(arena, "Tell me a story.", stream=True, options=endless)
    prompts = prompt(arena, "Once", stream=True, options=endless)

    def leave(number: int) -> None:
        path, body = ((CHAT, chats), (GENERATE, prompts))[number % 2]
        arena.leave(path, body, after=0.01 * (number % 30))

    arena.together(leave, range(arena.amount(100)), width=32)
