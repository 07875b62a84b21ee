"""Grammars of tool calls, in the markup of each family."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from core.contract.grammar import (
    CallMarkup,
    Either,
    ToolSpec,
    can_always_continue,
    choice,
    json_object,
    json_schema,
    regex,
    tool_calls,
    tool_calls_in_text,
)
from server.parsers.tool import TOOL_PARSERS
from tests.support.constrained import Decoder

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [ToolSpec("get_weather", CITY), ToolSpec("get_weather_now"), ToolSpec("stop", None)]

HERMES, LLAMA, MISTRAL, XML, PYTHONIC = (
    TOOL_PARSERS[family].markup
    for family in ("hermes", "llama3_json", "mistral", "qwen3_coder", "pythonic")
)
SPECIAL = CallMarkup(
    trigger="<|im_start|>", before="<|im_start|>{name}:", after="<|endoftext|>", between=""
)


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


def hermes_calls(text):
    calls = [
        json.loads(call)
        for call in re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
    ]
    assert "\n".join(re.findall(r"<tool_call>.*?</tool_call>", text, re.DOTALL)) == text, (
        "text around the calls"
    )
    return calls


def test_required_calls_parse_and_satisfy_their_schemas(decoder):
    sequences = [decoder.sequence(tool_calls(TOOLS, HERMES), seed=seed) for seed in range(100)]
    names = set()
    for text in decoder.run(*sequences):
        assert not text.endswith("…")
        for call in hermes_calls(text):
            names.add(call["name"])
            schema = (
                CITY if call["name"] == "get_weather" else {"type": "object", "maxProperties": 0}
            )
            jsonschema.validate(call["arguments"], schema)
    assert names == {tool.name for tool in TOOLS}


def test_a_named_call_is_one_call_of_that_tool(decoder):
    grammar = tool_calls(TOOLS[:1], HERMES, is_single=True)
    for text in decoder.run(*(decoder.sequence(grammar, seed=seed) for seed in range(20))):
        (call,) = hermes_calls(text)
        assert call["name"] == "get_weather"


CALLS = {
    "hermes": (
        HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
        (
            '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>\n'
            '<tool_call>\n{"name": "get_weather_now", "arguments": {}}\n</tool_call>'
        ),
        '<tool_call>\n{"name": "sing", "arguments": {}}\n</tool_call>',
    ),
    "llama": (
        LLAMA,
        '{"name": "get_weather", "parameters": {"city": "Oslo", "days": 3}}',
        '{"name": "stop", "parameters": {}}; {"name": "stop", "parameters": {}}',
        '{"name": "get_weather", "parameters": {"days": 3}}',
    ),
    "mistral": (
        MISTRAL,
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
        '[TOOL_CALLS][{"name": "stop", "arguments": {}}, {"name": "stop", "arguments": {}}]',
        '[TOOL_CALLS][{"name": "stop", "arguments": {"a": 1}}]',
    ),
    "special tokens": (
        SPECIAL,
        '<|im_start|>get_weather:{"city": "Oslo"}<|endoftext|>',
        "<|im_start|>stop:{}<|endoftext|><|im_start|>get_weather_now:{}<|endoftext|>",
        "<|im_start|>go:{}<|endoftext|>",
    ),
    "xml": (
        XML,
        (
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nOs<lo\n\n</parameter>\n"
            "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
        ),
        (
            "<tool_call>\n<function=stop>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=stop>\n</function>\n</tool_call>"
        ),
        (
            "<tool_call>\n<function=get_weather>\n<parameter=days>\nthree\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
    ),
    "pythonic": (
        PYTHONIC,
        '[get_weather(city="Oslo", days=3)]',
        "[stop(), get_weather_now()]",
        "[get_weather(days=3)]",
    ),
}


@pytest.fixture(params=CALLS)
def family(request):
    return CALLS[request.param]


def test_one_or_more_calls(decoder, family):
    markup, one, two, wrong = family
    grammar = tool_calls(TOOLS, markup)
    assert decoder.accepts(grammar, one)
    assert decoder.accepts(grammar, two)
    assert not decoder.accepts(grammar, wrong)
    assert not decoder.accepts(grammar, one + one[:1])
    assert not decoder.accepts(grammar, "Sure: " + one)
    assert not decoder.accepts(grammar, "")


def test_a_single_call(decoder, family):
    markup, one, two, _ = family
    grammar = tool_calls(TOOLS, markup, is_single=True)
    assert decoder.accepts(grammar, one)
    assert not decoder.accepts(grammar, two)


def test_text_is_free_until_it_opens_a_call(decoder, family):
    markup, one, two, wrong = family
    grammar = tool_calls_in_text(TOOLS, markup)
    assert decoder.accepts(grammar, "It rains, <b>really</b>: I do not call anything.")
    assert decoder.accepts(grammar, "")
    assert decoder.accepts(grammar, one)
    assert decoder.accepts(grammar, two)
    assert not decoder.accepts(grammar, wrong)
    if not markup.only_at_start:
        assert decoder.accepts(grammar, "Sure. " + one)
        assert not decoder.accepts(grammar, "Sure. " + wrong)


def test_a_single_call_ends_the_text(decoder, family):
    markup, one, two, _ = family
    grammar = tool_calls_in_text(TOOLS, markup, is_single=True)
    assert decoder.accepts(grammar, "just text")
    assert decoder.accepts(grammar, one)
    assert not decoder.accepts(grammar, two)
    assert not decoder.accepts(grammar, one + " more")


PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("text", "example"),
    [
        (json_schema(PERSON), '{"name": "Bo"}'),
        (json_schema(PERSON), '{"name": "get_weather"}'),
        (json_schema({"type": "array", "items": PERSON}), '[{"name": "Bo"}]'),
        (json_object(), '{"name": "stop", "parameters": 3}'),
        (json_object(), '{"names": {"name": []}}'),
        (regex("[a-z ]*"), "just words"),
        (choice(["yes"]), "yes"),
    ],
)
def test_calls_or_a_format_are_accepted(decoder, family, text, example):
    markup, one, two, _ = family
    grammar = Either((tool_calls(TOOLS, markup), text))
    assert decoder.accepts(grammar, one)
    assert decoder.accepts(grammar, two)
    assert decoder.accepts(grammar, example)
    assert not decoder.accepts(grammar, "Sure!")


def test_text_may_continue_between_calls(decoder):
    grammar = tool_calls_in_text(TOOLS, HERMES)
    call = CALLS["hermes"][1]
    assert decoder.accepts(grammar, f"First {call} then {call} done.")
    assert can_always_continue(grammar)
    assert not can_always_continue(tool_calls(TOOLS, HERMES))


def test_an_opened_call_is_completed(decoder):
    sequences = [
        decoder.sequence(tool_calls_in_text(TOOLS, HERMES), seed=seed, max_tokens=150)
        for seed in range(12)
    ]
    for text in decoder.run(*sequences, favourites='<tool_call>"}'):
        for part in text.split("<tool_call>")[1:]:
            if "</tool_call>" in part:
                json.loads(part.split("</tool_call>")[0])
            else:
                assert text.endswith("…")


def test_unsupported_keywords_make_the_grammar_wider(decoder):
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "format": "made-up"},
            "b": {"not": {"type": "string"}},
            "c": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        },
        "required": ["a"],
    }
    grammar = tool_calls([ToolSpec("f", parameters)], HERMES)
    ok = '<tool_call>\n{"name": "f", "arguments": {"a": "x", "c": 1.5}}\n</tool_call>'
    assert decoder.accepts(grammar, ok)


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral"])
def test_recursive_schemas_are_supported(decoder, name):
    tree = {
        "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}},
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/n"}, "again": {"$ref": "#"}},
        "required": ["root"],
    }
    markup = CALLS[name][0]
    grammar = tool_calls([ToolSpec("stop", tree, is_strict=True)], markup)
    value = '{"root": {"next": {"next": {}}}, "again": {"root": {}}}'
    call = markup.opening + markup.before.replace("{name}", "stop") + value + markup.after
    assert decoder.accepts(grammar, call + markup.closing)
    assert not decoder.accepts(grammar, call.replace("next", "last") + markup.closing)
