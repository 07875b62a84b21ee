"""C-094, C-122 to C-126: output of a given form, in every spelling, on both endpoints."""

import enum
import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import openai
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    Api,
    Json,
    chat_text_of,
    completion_text_of,
    in_threads,
    user,
)
from compat_tests.support.calls import ADD, TOOLS, WEATHER, check_calls, named
from compat_tests.support.http import encode
from compat_tests.support.process import ServerProcess

SEEDS = range(5)

PERSON: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "mood": {"enum": ["good", "bad", None, 7]},
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"},
                "number": {"type": "integer", "minimum": 1, "maximum": 99},
            },
            "required": ["street", "number"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"const": "t"}, "minItems": 1, "maxItems": 3},
        "nick": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "null"}]},
        "friend": {"anyOf": [{"$ref": "#/$defs/friend"}, {"type": "null"}]},
    },
    "required": ["name", "mood", "address", "tags", "nick", "friend"],
    "additionalProperties": False,
    "$defs": {
        "friend": {
            "type": "object",
            "properties": {"friend": {"anyOf": [{"$ref": "#/$defs/friend"}, {"type": "null"}]}},
            "required": ["friend"],
            "additionalProperties": False,
        }
    },
}


def json_schema(schema: Json, **fields: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **fields}}


def strict(schema: Json) -> Json:
    return json_schema(schema, strict=True)


def check_person(text: str) -> None:
    """The text is JSON and nothing else, valid, its keys in the schema's order."""
    assert text == text.strip()
    value = json.loads(text)
    Draft202012Validator(PERSON).validate(value)
    assert list(value) == list(PERSON["properties"])
    assert list(value["address"]) == ["street", "number"]


@pytest.mark.parametrize("content", ["Give me a JSON object.", "Hello!", "Tell me a story."])
def test_c122_json_object(api: Api, content: str) -> None:
    for temperature in (0, 1):
        [choice] = api.chat(
            content,
            response_format={"type": "json_object"},
            temperature=temperature,
            seed=2,
            max_tokens=300,
        )["choices"]
        text = choice["message"]["content"]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert choice["finish_reason"] == "length"
            assert text.startswith("{") or "reasoning" in choice["message"]


def test_c122_json_object_ends(api: Api) -> None:
    choices = api.chat(
        "Give me a JSON object describing a cat.",
        response_format={"type": "json_object"},
        n=8,
        temperature=1,
        seed=1,
    )["choices"]
    ended = [choice for choice in choices if choice["finish_reason"] == "stop"]
    assert ended
    for choice in ended:
        assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize("strict", [None, True, False])
@pytest.mark.parametrize("content", ["Give me a JSON object.", "Hello!"])
def test_c123_json_schema(api: Api, content: str, *, strict: bool | None) -> None:
    body = api.chat(content, response_format=json_schema(PERSON, strict=strict))
    [choice] = body["choices"]
    assert choice["finish_reason"] == "stop"
    check_person(choice["message"]["content"])


def test_c123_json_schema_at_temperature_1(api: Api) -> None:
    body = api.chat(response_format=json_schema(PERSON), n=8, temperature=1, seed=11)
    for choice in body["choices"]:
        if choice["finish_reason"] == "stop":
            check_person(choice["message"]["content"])
    assert any(choice["finish_reason"] == "stop" for choice in body["choices"])


def test_c123_keys_come_in_the_order_of_the_schema(api: Api) -> None:
    for names in (["b", "a", "c"], ["c", "b", "a"], ["age", "name"], ["name", "age"]):
        schema = {
            "type": "object",
            "properties": {name: {"type": "integer", "maximum": 9} for name in names},
            "required": names[::-1],
            "additionalProperties": False,
        }
        text = api.chat_text("Give me a JSON object.", response_format=json_schema(schema))
        assert list(json.loads(text)) == names


def test_c123_a_recursive_schema(api: Api) -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer", "minimum": 0, "maximum": 9},
                    "children": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/node"},
                        "maxItems": 1,
                    },
                },
                "required": ["value", "children"],
                "additionalProperties": False,
            }
        },
    }
    body = api.chat(response_format=json_schema(schema), n=4, temperature=1, seed=3)
    ended = [choice for choice in body["choices"] if choice["finish_reason"] == "stop"]
    for choice in ended:
        Draft202012Validator(schema).validate(json.loads(choice["message"]["content"]))
    assert ended


BAD_FORMATS: list[tuple[Any, str]] = [
    ({"type": "json_schema"}, "json_schema"),
    ({"type": "json_schema", "json_schema": None}, "json_schema"),
    ({"type": "json_schema", "json_schema": {}}, "name"),
    ({"type": "json_schema", "json_schema": {"schema": {}}}, "name"),
    ({"type": "json_schema", "json_schema": {"name": "no good", "schema": {}}}, "name"),
    ({"type": "json_schema", "json_schema": {"name": "x", "schema": 5}}, "schema"),
    (strict({"type": "objekt"}), "objekt"),
    (strict({"type": "object", "properties": {"a": {"type": 5}}}), "type"),
    (strict({"type": "object", "properties": []}), "properties"),
    (strict({"type": "object", "required": "a"}), "required"),
    (strict({"$ref": "#/$defs/absent"}), "absent"),
    (strict({"$ref": "https://example.com/schema.json"}), "$ref"),
    (strict({"type": "array", "uniqueItems": True}), "uniqueItems"),
    (strict({"type": "array", "contains": {"type": "integer"}}), "contains"),
    (strict({"not": {"type": "string"}}), "not"),
    (strict({"if": {"type": "string"}, "then": {"minLength": 3}}), "if"),
    (strict({"type": "string", "format": "nonsense"}), "nonsense"),
    (strict({"type": "string", "pattern": "("}), "response_format"),
    (strict({"type": "string", "pattern": "(?=a)a"}), "response_format"),
    (strict({"type": "integer", "minimum": 5, "maximum": 4}), "response_format"),
    ({"type": "yaml"}, "type"),
    ({"type": None}, "type"),
    ({}, "type"),
    ("json_object", "response_format"),
    ({"type": "structural_tag"}, "structural"),
    ({"type": "structural_tag", "structures": [], "triggers": []}, "response_format"),
]


@pytest.mark.parametrize(("response_format", "name"), BAD_FORMATS)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c124_bad_formats(api: Api, path: str, response_format: Any, name: str) -> None:
    make = api.chat_body if path == CHAT else api.completion_body
    for stream in (False, True):
        body = make("Hello!", response_format=response_format, stream=stream)
        error = api.refused(path, body, name)
        assert error["param"].startswith("response_format")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    """An inner object."""

    size: int = Field(ge=0, le=20, description="How large.")
    colour: Colour


class Nested(BaseModel):
    inner: Inner
    others: list[Inner] = Field(max_length=2)
    title: str = Field(max_length=10)


class Optionals(BaseModel):
    nick: str | None = Field(max_length=8)
    inner: Inner | None
    kind: Literal["cat", "dog"]
    either: int | Inner = 5


class Tree(BaseModel):
    value: int = Field(ge=0, le=9)
    left: "Tree | None"


class Maps(BaseModel):
    ages: dict[str, int]
    flag: bool
    share: float


class Event(BaseModel):
    """As in the SDK's own examples."""

    name: str
    date: str
    participants: list[str]


@pytest.mark.parametrize("model", [Nested, Optionals, Tree, Maps, Event])
@pytest.mark.parametrize("temperature", [0, 1])
def test_c125_parse(
    sdk: openai.OpenAI, server: ServerProcess, model: type[BaseModel], temperature: int
) -> None:
    num_parsed = 0
    for seed in range(1 if temperature == 0 else 4):
        try:
            completion = sdk.chat.completions.parse(
                model=server.model,
                messages=user("Give me a JSON object describing a cat."),
                response_format=model,
                temperature=temperature,
                seed=seed,
                max_completion_tokens=600,
            )
        except openai.LengthFinishReasonError:  # it found no end; said so, then
            continue
        [choice] = completion.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, model)
        num_parsed += 1
    assert num_parsed or temperature == 0


def test_c125_too_short_for_the_format(sdk: openai.OpenAI, server: ServerProcess) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        sdk.chat.completions.parse(
            model=server.model,
            messages=user("Hello!"),
            response_format=Nested,
            max_completion_tokens=5,
        )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c126_streamed_is_whole(api: Api, path: str) -> None:
    for response_format in (json_schema(PERSON), {"type": "json_object"}):
        fields = {"response_format": response_format, "max_tokens": 200}
        if path == CHAT:
            assert chat_text_of(api.stream_chat(**fields)) == api.chat_text(**fields)
        else:
            chunks = api.stream_completion("A cat:", **fields)
            assert completion_text_of(chunks) == api.text("A cat:", **fields)


def test_c126_the_helper_of_the_sdk(sdk: openai.OpenAI, server: ServerProcess) -> None:
    options: Json = {"model": server.model, "messages": user("Hello!"), "temperature": 0}
    whole = sdk.chat.completions.parse(response_format=Nested, **options).choices[0]
    with sdk.chat.completions.stream(response_format=Nested, **options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert {"content.delta", "content.done"} <= kinds
    assert final.message.parsed == whole.message.parsed
    assert final.message.content == whole.message.content
    assert final.finish_reason == whole.finish_reason == "stop"


def is_xy(text: str) -> bool:
    return isinstance(json.loads(text)["x"], bool)


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


XY: Json = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}
REGEX = r"[a-z]{3,8} \d{2}"
CHOICES = ["yes", "no", 'per"haps', "not at all"]
LARK = 'start: "<" NAME ">"\nNAME: /[a-z]{1,6}/'
GBNF = 'root ::= "<" name ">"\nname ::= [a-z] [a-z]?'
CONSTRAINTS: list[tuple[Json, Callable[[str], bool]]] = [
    ({"response_format": json_schema(XY)}, is_xy),
    ({"response_format": {"type": "json_schema", "schema": XY}}, is_xy),
    ({"response_format": {"type": "json_object", "schema": XY}}, is_xy),
    ({"structured_outputs": {"json": XY}}, is_xy),
    ({"structured_outputs": {"json": json.dumps(XY)}}, is_xy),
    (
        {"structured_outputs": {"json": XY, "disable_any_whitespace": True}},
        matches(r'\{"x":(true|false)\}'),
    ),
    ({"structured_outputs": {"regex": REGEX}}, matches(REGEX)),
    ({"structured_outputs": {"choice": CHOICES}}, CHOICES.__contains__),
    ({"structured_outputs": {"grammar": LARK}}, matches("<[a-z]{1,6}>")),
    ({"structured_outputs": {"grammar": GBNF}}, matches("<[a-z]{1,2}>")),
    ({"guided_json": XY}, is_xy),
    ({"guided_json": json.dumps(XY)}, is_xy),
    ({"guided_regex": REGEX}, matches(REGEX)),
    ({"guided_choice": CHOICES}, CHOICES.__contains__),
    ({"guided_grammar": LARK}, matches("<[a-z]{1,6}>")),
    ({"guided_json": XY, "guided_decoding_backend": "auto"}, is_xy),
    ({"regex": REGEX}, matches(REGEX)),
    ({"ebnf": GBNF}, matches("<[a-z]{1,2}>")),
    ({"json_schema": XY}, is_xy),
    ({"json_schema": json.dumps(XY)}, is_xy),
    ({"grammar": GBNF}, matches("<[a-z]{1,2}>")),
]


@pytest.mark.parametrize(("fields", "is_right"), CONSTRAINTS)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c094_every_spelling_is_obeyed(
    api: Api, path: str, fields: Json, is_right: Callable[[str], bool]
) -> None:
    for temperature in (0, 1):
        if path == CHAT:
            body = api.chat("Hello!", temperature=temperature, max_tokens=80, **fields)
            text = body["choices"][0]["message"]["content"]
        else:
            body = api.complete("Hello!", temperature=temperature, max_tokens=80, **fields)
            text = body["choices"][0]["text"]
        assert body["choices"][0]["finish_reason"] == "stop"
        assert is_right(text), text


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c094_a_tag_that_was_asked_for_is_no_thinking(api: Api, path: str) -> None:
    fields = {"guided_choice": ["<think>a</think>b"], "max_tokens": 80}
    if path == CHAT:
        message = api.chat("Hello!", **fields)["choices"][0]["message"]
        assert "reasoning" not in message
        text = message["content"]
    else:
        text = api.complete("Hello!", **fields)["choices"][0]["text"]
    assert text == "<think>a</think>b"


@pytest.mark.parametrize("name", ["structured_outputs", "guided_json_object"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c094_any_object(api: Api, path: str, name: str) -> None:
    value: Any = True if name == "guided_json_object" else {"json_object": True}
    make = api.chat_body if path == CHAT else api.completion_body
    body = api.ok(path, make("JSON for a cat:", max_tokens=300, **{name: value}))
    [choice] = body["choices"]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert text.startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)


def tag(trigger: str, rest: str) -> Json:
    return {
        "type": "structural_tag",
        "structures": [{"begin": trigger + rest, "schema": XY, "end": "</x>"}],
        "triggers": [trigger],
    }


@pytest.mark.parametrize(
    "fields",
    [
        lambda *begin: {"response_format": tag(*begin)},
        lambda *begin: {"structured_outputs": {"structural_tag": tag(*begin)}},
        lambda *begin: {"structured_outputs": {"structural_tag": json.dumps(tag(*begin))}},
        lambda *begin: {"structural_tag": tag(*begin)},
    ],
)
def test_c094_structural_tags(api: Api, fields: Callable[[str, str], Json]) -> None:
    """Free text, but what the trigger opens becomes the tag."""
    free = api.chat_text("Hello!", max_tokens=20)
    assert api.chat_text("Hello!", max_tokens=20, **fields("<nobody says this", "")) == free
    # a whole word: where a trigger ends inside of a token, the model may prefer another one
    trigger = next(word for word in re.findall("[A-Za-z]{3,}", free)[1:] if free.count(word) == 1)
    text = api.chat_text("Hello!", max_tokens=80, **fields(trigger, "|"))
    assert text.startswith(free[: free.index(trigger)])
    found = re.match(r"\|(.*?)</x>", text.partition(trigger)[2], re.DOTALL)
    assert found
    assert is_xy(found[1])


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"guided_json": XY, "guided_regex": "a"}, "guided_regex"),
        ({"response_format": json_schema(XY), "grammar": GBNF}, "grammar"),
        ({"response_format": {"type": "json_object"}, "json_schema": XY}, "json_schema"),
        ({"structured_outputs": {"json": XY}, "guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {"json": XY, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"json": XY, "whitespace_pattern": " *"}}, "whitespace_pattern"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs"),
        ({"structured_outputs": {"json": "5"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": {"format": {}}}}, "structured_outputs"),
        ({"guided_choice": [1]}, "guided_choice"),
        ({"guided_json": "nonsense"}, "guided_json"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_regex": "a(?!b)"}, "guided_regex"),
        ({"guided_grammar": "start: absent"}, "guided_grammar"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"grammar": "root ::= absent"}, "grammar"),
        ({"json_schema": "{"}, "json_schema"),
        ({"guided_json": XY, "min_tokens": 5, "max_tokens": 9}, "min_tokens"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c094_what_cannot_be_obeyed_is_refused(
    api: Api, path: str, fields: Json, name: str
) -> None:
    make = api.chat_body if path == CHAT else api.completion_body
    for stream in (False, True):
        error = api.refused(path, make("Hello!", stream=stream, **fields), name)
        assert error["param"].startswith(name) or name in error["message"]


def test_formats_that_ask_for_nothing(api: Api) -> None:
    plain = api.chat(max_tokens=8)["choices"]
    for fields in (
        {"response_format": {"type": "text"}},
        {"response_format": None, "structured_outputs": None, "guided_json": None},
        {"guided_json_object": False},
        {"guided_decoding_backend": "outlines"},
    ):
        assert api.chat(max_tokens=8, **fields)["choices"] == plain


def test_logprobs_of_constrained_tokens(api: Api) -> None:
    """They are those of the model, whatever was allowed; and the bytes are the text."""
    for top in (0, 3):
        [choice] = api.chat(response_format=json_schema(PERSON), logprobs=True, top_logprobs=top)[
            "choices"
        ]
        entries = choice["logprobs"]["content"]
        text = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
        assert text.startswith(choice["message"]["content"])
        assert all(len(entry["top_logprobs"]) == top for entry in entries)
        assert all(-9999 <= entry["logprob"] <= 0 for entry in entries)


def test_a_format_that_is_cut(api: Api) -> None:
    whole = api.chat_text(response_format=json_schema(PERSON))
    for most in (1, 7, 20):
        [choice] = api.chat(response_format=json_schema(PERSON), max_tokens=most)["choices"]
        assert choice["finish_reason"] == "length"
        assert whole.startswith(choice["message"]["content"])


def test_a_stop_string_ends_it_too(api: Api) -> None:
    [choice] = api.chat(response_format=json_schema(PERSON), stop='"mood"')["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == '"mood"'
    assert '"mood"' not in choice["message"]["content"]


# Alone and together.


def mixed_requests(api: Api) -> list[tuple[str, Json]]:
    """Constrained and free ones, greedy and seeded, on both endpoints."""
    kinds: list[Json] = [
        {},
        {"response_format": json_schema(PERSON)},
        {"response_format": {"type": "json_object"}},
        {"guided_regex": REGEX},
        {"guided_choice": CHOICES},
        {"grammar": GBNF},
    ]
    chats: list[Json] = [
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": [WEATHER, ADD], "tool_choice": named("add")},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"response_format": json_schema(PERSON), "reasoning_effort": "low"},
        {"stop": ["e"], "reasoning_effort": "low", "thinking_token_budget": 4},
    ]
    requests: list[tuple[str, Json]] = []
    for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 17}):
        common: Json = {"max_tokens": 60, **sampling}
        requests += [(CHAT, api.chat_body("Hello!", **common, **kind)) for kind in kinds + chats]
        requests += [(COMPLETIONS, api.completion_body("Once", **common, **kind)) for kind in kinds]
    return requests


def comparable(body: Json) -> list[Json]:
    """Choices without what is new for every answer."""
    for choice in body["choices"]:
        for call in choice.get("message", {}).get("tool_calls", []):
            del call["id"]
    return body["choices"]


def test_c128_constrained_and_free_together_are_as_alone(api: Api) -> None:
    requests = mixed_requests(api)
    alone = [comparable(api.ok(path, body)) for path, body in requests]
    together = in_threads(lambda request: comparable(api.ok(*request)), requests)
    assert together == alone


# Hostile.

LIMIT = 20.0
"""Seconds for one hostile request; it takes a fraction of one on a machine that is not busy."""


def deep_schema(depth: int) -> Json:
    schema: Json = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def deep_array(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b"{}" + b"}" * depth


HOSTILE: dict[str, Json | bytes] = {
    "refers to itself": {"guided_json": {"$ref": "#"}},
    "refers in a circle": {
        "guided_json": {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        }
    },
    "cannot end": {
        "guided_json": {
            "type": "object",
            "properties": {"a": {"$ref": "#"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    },
    "a large enum": {"guided_json": {"enum": [f"member {i * 7919}" for i in range(10_000)]}},
    "a large choice": {"guided_choice": [f"member {i * 7919}" for i in range(10_000)]},
    "a megabyte": {
        "guided_json": {
            "type": "object",
            "properties": {f"property {i}": {"type": "string"} for i in range(25_000)},
        }
    },
    "a megabyte of text": {"guided_json": {"type": "object", "description": "x" * 1_000_000}},
    "many required": {
        "guided_json": {
            "type": "object",
            "properties": {f"p{i}": {"type": "integer"} for i in range(3000)},
            "required": [f"p{i}" for i in range(3000)],
        }
    },
    "many alternatives": {
        "guided_json": {
            "anyOf": [
                {"type": "object", "properties": {f"p{i}": {"const": i}}, "required": [f"p{i}"]}
                for i in range(1000)
            ]
        }
    },
    "all of many": {
        "guided_json": {"allOf": [{"minimum": i, "type": "number"} for i in range(500)]}
    },
    "repetition": {"guided_regex": "((a{0,1000}){0,1000}){0,1000}"},
    "large repetition": {"guided_regex": "(a|b|ab){100000}"},
    "huge repetition": {"guided_regex": "a{99999999999}"},
    "a blow-up": {"guided_regex": "(a|b)*a(a|b){200}"},
    "look-ahead": {"guided_regex": "(?=a)b"},
    "look-behind": {"guided_regex": "(?<=a)b"},
    "a back reference": {"guided_regex": r"(a)\1"},
    "deep groups": {"guided_regex": "(" * 20_000 + "a" + ")" * 20_000},
    "a pattern in a schema": {
        "guided_json": {"type": "string", "pattern": "((a{0,1000}){0,1000}){0,1000}"}
    },
    "long strings": {"guided_json": {"type": "string", "minLength": 10**9}},
    "many items": {
        "guided_json": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}
    },
    "left recursion": {"guided_grammar": 'start: start "a" | "a"'},
    "hidden left recursion": {"guided_grammar": 'start: b start "a" | "a"\nb: "x" | ""'},
    "nothing but recursion": {"guided_grammar": "start: start"},
    "ambiguity": {"guided_grammar": 'start: start start start | "a" | ""'},
    "GBNF recursion": {"grammar": "root ::= root root | root"},
    "many rules": {
        "guided_grammar": "start: r0\n"
        + "\n".join(f'r{i}: r{i + 1} | "a{i}"' for i in range(20_000))
        + '\nr20000: "z"'
    },
    "deep": {"guided_json": deep_schema(60)},
    "very deep": deep_array(5_000),
    "deepest": deep_array(100_000),
    "special tokens": {"guided_regex": r"<\|im_end\|>{3}"},
    "a null byte": {"guided_regex": "\0+"},
    "bad types": {"guided_json": {"type": ["object", 5, None], "properties": 7}},
    "numbers beyond all bounds": {
        "guided_json": {"type": "integer", "minimum": -(10**300), "maximum": 10**300}
    },
    "an enum of everything": {"guided_json": {"enum": [None, [], {}, "", 0, [[{"a": [None]}]]]}},
}


def hostile_body(api: Api, fields: Json | bytes) -> bytes:
    if isinstance(fields, bytes):
        plain = encode(api.chat_body("Hello!", max_tokens=8))
        return plain[:-1] + b',"guided_json":' + fields + b"}"
    return encode(api.chat_body("Hello!", max_tokens=8, **fields))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_constraints(api: Api, name: str) -> None:
    """Refused, or served, in little time; and as a tool's schema too."""
    start = time.monotonic()
    reply = api.post(CHAT, hostile_body(api, HOSTILE[name]))
    took = time.monotonic() - start
    assert reply.status in {200, 400, 413}, reply.text[:500]
    if reply.status == 200:
        assert reply.json["choices"][0]["finish_reason"] in {"stop", "length"}
    assert took < LIMIT, took


@pytest.mark.parametrize(
    "name", [n for n, f in HOSTILE.items() if isinstance(f, dict) and "guided_json" in f]
)
def test_hostile_tools(api: Api, name: str) -> None:
    fields = HOSTILE[name]
    assert isinstance(fields, dict)
    tool = {"type": "function", "function": {"name": "f", "parameters": fields["guided_json"]}}
    start = time.monotonic()
    body = api.chat_body("Hello!", tools=[tool], tool_choice=named("f"), max_tokens=8)
    reply = api.post(CHAT, body)
    took = time.monotonic() - start
    assert reply.status in {200, 400}, reply.text[:500]
    assert took < LIMIT, took


def test_hostile_constraints_leave_other_streams_alone(api: Api) -> None:
    """A stream that runs meanwhile says the same, and does not wait for them for long."""
    options: Json = {"max_tokens": 900, "ignore_eos": True}
    expected = chat_text_of(api.stream_chat("Tell me a story.", **options))
    moments: list[float] = []
    texts: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        with api.server.connect() as connection:
            body = api.chat_body("Tell me a story.", stream=True, **options)
            reply = connection.request("POST", CHAT, body)
            for piece in reply.pieces():
                moments.append(time.monotonic())
                texts.append(piece.decode())
        is_over.set()

    reader = threading.Thread(target=read)
    reader.start()
    for fields in HOSTILE.values():
        if is_over.is_set():
            break
        assert api.post(CHAT, hostile_body(api, fields)).status in {200, 400, 413}
    reader.join()
    deltas = re.findall(r'"content":("(?:[^"\\]|\\.)*")', "".join(texts))
    assert "".join(json.loads(delta) for delta in deltas) == expected
    gaps = sorted(after - before for before, after in itertools.pairwise(moments))
    assert gaps[-1] < LIMIT / 2


def test_calls_are_right_after_all_of_this(api: Api) -> None:
    [choice] = api.chat("Hello!", tools=TOOLS, tool_choice="required", max_tokens=300)["choices"]
    check_calls(choice["message"]["tool_calls"])
