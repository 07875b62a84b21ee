"""Grammars that are dear to compile, to keep, or to compute masks of."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.support.api import Json
from tests.bystander.arena import CHAT, COMPLETIONS, Arena, attack


def json_schema(schema: Any) -> Json:
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def multiple_of(number: int) -> Json:
    return json_schema({"type": "integer", "multipleOf": number})


@attack("multipleOf with a large prime, senders leave", is_quick=True)
def large_prime(arena: Arena) -> None:
    def send(number: int) -> None:
        body = arena.chat(response_format=multiple_of(number))
        arena.leave(CHAT, body, after=0.3)

    arena.together(send, [499_979 + 2 * arena.number, 999_983 + 2 * arena.number])
    arena.post(CHAT, arena.chat(response_format=multiple_of(999_979 + 2 * arena.number)))


@attack("schema whose allOfs double at each level", is_quick=True)
def doubling_all_of(arena: Arena) -> None:
    for levels in (13, 24) if arena.size == 1 else (24,):
        definitions: Json = {"l0": {"type": "object", "properties": {"a": {"type": "string"}}}}
        for level in range(1, levels):
            below = {"$ref": f"#/$defs/l{level - 1}"}
            both = {"allOf": [below, below]}
            definitions[f"l{level}"] = {"type": "object", "properties": {"x": both, "y": both}}
        schema = {"$defs": definitions, "$ref": f"#/$defs/l{levels - 1}"}
        arena.post(CHAT, arena.chat(response_format=json_schema(schema)))


@attack("schema whose anyOfs and properties multiply")
def multiplying_any_of(arena: Arena) -> None:
    schema: Json = {"type": "string"}
    for level in range(12):
        schema = {
            "type": "object",
            "properties": {f"p{level}a": schema, f"p{level}b": schema},
            "anyOf": [{"required": [f"p{level}a"]}, {"required": [f"p{level}b"]}],
        }
    arena.post(CHAT, arena.chat(response_format=json_schema(schema)))


@attack("regex of two distant ends at temperature 2", is_quick=True)
def distant_ends(arena: Arena) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. " * 20
    probe = arena.completion(prompt, max_tokens=1)

    def cached() -> int:
        _, data = arena.post(COMPLETIONS, probe)
        return int(json.loads(data)["usage"]["prompt_tokens_details"]["cached_tokens"])

    cached()
    before = cached()
    for seed in range(arena.amount(20, least=2)):
        body = arena.completion(
            guided_regex="(.*a.{16}b|.*c.{17}d)", temperature=2, max_tokens=200, seed=seed
        )
        arena.post(COMPLETIONS, body)
    after = cached()
    if after < before:
        arena.fault(f"a cached prefix of {before} tokens shrank to {after}")


@attack("ambiguous grammar, n=32", is_quick=True)
def ambiguous(arena: Arena) -> None:
    grammar = 'start: e\ne: e e e | e e | "a" | "b" | "ab"'
    body = arena.completion(
        guided_grammar=grammar, temperature=1, max_tokens=arena.amount(64, least=24), n=32
    )
    arena.post(COMPLETIONS, body, timeout=60)


@attack("hundreds of different grammars, senders leave")
def many_grammars(arena: Arena) -> None:
    def send(number: int) -> None:
        body = arena.chat(response_format=multiple_of(10_007 + 2 * number))
        arena.leave(CHAT, body, after=0.05)

    arena.together(send, range(arena.amount(300)))


@attack("hundreds of regexes with counted repetitions")
def counted(arena: Arena) -> None:
    def send(number: int) -> None:
        regex = f"((a{{0,{100 + number}}}){{0,{100 + number}}}){{0,100}}x{number}"
        arena.post(COMPLETIONS, arena.completion(guided_regex=regex, max_tokens=2))

    arena.together(send, range(arena.amount(200)))


@attack("hostile tool schemas")
def hostile_tools(arena: Arena) -> None:
    def tool(number: int) -> Json:
        deep: Json = {"type": "string", "enum": [f"{number}-{i}" for i in range(500)]}
        for level in range(30):
            deep = {"type": "object", "properties": {f"k{level}": deep}, "required": [f"k{level}"]}
        return {"type": "function", "function": {"name": f"f{number}", "parameters": deep}}

    def send(number: int) -> None:
        tools = [tool(100 * number + i) for i in range(20)]
        arena.post(CHAT, arena.chat(tools=tools, tool_choice="required", max_tokens=4))

    arena.together(send, range(arena.amount(30)), width=4)


@attack("schema with 10,000 enum values and 1 MB of text")
def large_enum(arena: Arena) -> None:
    schema = {"enum": [f"value number {i} {'x' * 80}" for i in range(10_000)]}
    for _ in range(arena.amount(4)):
        arena.post(CHAT, arena.chat(response_format=json_schema(schema), max_tokens=4))


@attack("array of minItems 10^9 and pattern of 100,000 characters")
def endless_array(arena: Arena) -> None:
    for schema in (
        {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
        {"type": "string", "pattern": "(a|b)" * 20_000},
        {"type": "string", "minLength": 10**8},
        {"type": "object", "minProperties": 10**8},
        {"type": "number", "minimum": 1e300, "maximum": 1.0000001e300},
        {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    ):
        arena.post(CHAT, arena.chat(response_format=json_schema(schema), max_tokens=4))
