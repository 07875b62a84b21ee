"""JSON Schemas: keywords that are enforced, ignored or refused."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup, ToolSpec, json_schema, tool_calls
from core.grammar.matcher.values import MAX_MULTIPLE
from tests.support.constrained import Decoder, refusal
from tests.support.each import each

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def lost(decoder, schema):
    """The keywords that a format without ``strict`` loses."""
    return [k for _, k in decoder.compiler.check(json_schema(schema, is_strict=False))]


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("not", {"type": "string"}),
        ("if", True),
        ("dependentRequired", {"a": ["b"]}),
        ("dependentSchemas", {"a": {}}),
        ("uniqueItems", True),
        ("contains", {"type": "integer"}),
        ("propertyNames", {"pattern": "^a"}),
        ("unevaluatedProperties", False),
        ("nullable", True),
        ("$dynamicRef", "#a"),
        ("x-guidance", {"lenient": True}),
        ("propertyNames", {"type": "string", "minLength": 1}),
    ],
)
def test_keywords_that_cannot_be_enforced_are_refused_by_name(decoder, keyword, value):
    assert f"'{keyword}'" in refusal(decoder, json_schema({keyword: value}))
    deep = {"type": "array", "items": {"anyOf": [{"type": "null"}, {keyword: value}]}}
    assert f"'{keyword}'" in refusal(decoder, json_schema(deep))
    decoder.compiler.check(json_schema({"type": "object", keyword: value}, is_strict=False))


def test_annotations_are_ignored(decoder):
    annotated = {
        **OBJECT,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/a",
        "$comment": "c",
        "title": "t",
        "description": "d",
        "default": {},
        "examples": [1],
        "deprecated": True,
        "readOnly": True,
        "x-order": 3,
        "nullable": False,
        "uniqueItems": False,
    }
    assert decoder.accepts(json_schema(annotated), '{"a": 1}')
    assert not decoder.accepts(json_schema(annotated), "{}")


def test_unsupported_formats_are_refused_by_name(decoder):
    assert "'made-up'" in refusal(decoder, json_schema({"type": "string", "format": "made-up"}))
    for kind, name in (("integer", "int32"), ("number", "double"), ("string", "password")):
        decoder.compiler.check(json_schema({"type": kind, "format": name}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": 7},
        {"type": [{}]},
        {"type": []},
        {"properties": []},
        {"properties": {"a": 1}},
        {"required": "a"},
        {"required": [1]},
        {"anyOf": {}},
        {"anyOf": []},
        {"enum": []},
        {"enum": 3},
        {"minimum": "a"},
        {"pattern": 3},
        {"format": 3},
        {"$ref": 3},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "pattern": "("},
        {"oneOf": [{"type": "string"}, {"maxLength": 3}]},
        False,
    ],
)
def test_invalid_schemas_are_refused(decoder, schema):
    refusal(decoder, json_schema(schema))


def test_schemas_of_typed_models_are_supported(decoder):
    schema = {
        "$defs": {
            "Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"},
            "Node": {
                "additionalProperties": False,
                "properties": {
                    "value": {"title": "Value", "type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "title": "Node",
                "type": "object",
            },
            "Cat": {
                "properties": {"kind": {"const": "cat", "type": "string"}},
                "required": ["kind"],
                "type": "object",
            },
            "Dog": {
                "properties": {"kind": {"const": "dog", "type": "string"}},
                "required": ["kind"],
                "type": "object",
            },
        },
        "additionalProperties": False,
        "properties": {
            "color": {"$ref": "#/$defs/Color"},
            "head": {"$ref": "#/$defs/Node"},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "pet": {
                "discriminator": {"propertyName": "kind"},
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
            },
            "counts": {"additionalProperties": {"type": "integer"}, "type": "object"},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "required": ["color", "head", "score", "pet", "counts", "pair"],
        "type": "object",
    }
    value = {
        "color": "red",
        "head": {"value": 1, "next": {"value": 2, "next": None}},
        "score": 1.5,
        "pet": {"kind": "dog"},
        "counts": {"a": 1},
        "pair": [1, "x"],
    }
    assert decoder.accepts(json_schema(schema), json.dumps(value))
    assert not decoder.accepts(json_schema(schema), json.dumps(value | {"color": "green"}))


def test_objects_are_closed_unless_several_schemas_describe_them(decoder):
    assert not decoder.accepts(json_schema(OBJECT), '{"a": 1, "b": 2}')
    assert decoder.accepts(json_schema(OBJECT, is_closed=False), '{"a": 1, "b": 2}')
    assert decoder.accepts(json_schema(OBJECT | {"additionalProperties": True}), '{"a": 1, "b": 2}')
    combined = {"allOf": [OBJECT, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    assert decoder.accepts(json_schema(combined), '{"a": 1, "b": 2}')


def test_older_keywords_are_supported(decoder):
    pair = {"type": "array", "items": [{"type": "integer"}], "additionalItems": False}
    assert decoder.accepts(json_schema(pair), "[1]")
    assert not decoder.accepts(json_schema(pair), "[1, 2]")
    schema = {"definitions": {"n": {"type": "null"}}, "$ref": "#/definitions/n"}
    assert decoder.accepts(json_schema(schema), "null")


_VALUES = (
    *(True, False, None, 0, 1, -1, 2, 7, 1.5, "", "a", "^a", "b$", "string", "integer", "object"),
    *("array", "date", [], ["a"], ["string", "null"], [1, "a", None], {}, {"a": 1}),
)
_KEYWORDS = (
    *("type", "enum", "const", "anyOf", "oneOf", "allOf", "items", "prefixItems", "properties"),
    *("required", "additionalProperties", "patternProperties", "minItems", "maxItems", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "format"),
    *("minProperties", "maxProperties", "$ref", "title", "uniqueItems", "not", "$defs"),
)


def random_keywords(rng, depth=0):
    """A schema of random keywords, most of them with values of the right kind."""
    schema = {}
    for keyword in rng.sample(_KEYWORDS, rng.randint(0, 3)):
        value = rng.choice(_VALUES)
        if rng.random() < 0.8 and depth < 3:
            if keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
                value = [random_keywords(rng, depth + 1) for _ in range(rng.randint(1, 2))]
            elif keyword in ("items", "additionalProperties"):
                value = random_keywords(rng, depth + 1)
            elif keyword in ("properties", "$defs", "patternProperties"):
                value = {name: random_keywords(rng, depth + 1) for name in ("a", "b")}
            elif keyword == "$ref":
                value = rng.choice(["#", "#/$defs/a", "#/properties/b"])
            elif keyword == "type":
                value = rng.choice(["string", "integer", "object", "array", "null"])
        schema[keyword] = value
    return schema


def test_random_schemas_are_enforced_or_refused(decoder):
    rng = random.Random(0)
    schemas, sequences = [], []
    while len(sequences) < 60:
        schema = random_keywords(rng)
        try:
            sequences.append(
                decoder.sequence(json_schema(schema), seed=len(sequences), max_tokens=60)
            )
        except InvalidRequest:
            continue
        schemas.append(schema)
    num_whole = 0
    for schema, text in zip(schemas, decoder.run(*sequences, favourites='"}],:0'), strict=True):
        if not text.endswith("…"):
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
            num_whole += 1
    assert num_whole > 30


def test_strict_tools_refuse_unsupported_keywords(decoder):
    markup = CallMarkup(trigger="<", before="<{name}>", after="</>")
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    assert "'not'" in refusal(decoder, tool_calls([ToolSpec("f", schema, is_strict=True)], markup))
    decoder.compiler.check(tool_calls([ToolSpec("f", schema)], markup))


@pytest.mark.parametrize("step", [1, 7, 86_400, 100_000, 0.01, 0.25, 1e-6, 5.0])
def test_a_step_is_enforced(decoder, step):
    grammar = json_schema({"type": "number", "multipleOf": step})
    decoder.compiler.check(grammar)
    assert decoder.accepts(json_schema({"type": "integer", "multipleOf": 7}), "21")
    assert not decoder.accepts(json_schema({"type": "integer", "multipleOf": 7}), "22")


@pytest.mark.parametrize("step", [499_979, 100_001, 999.9999, 1e300, 0, -2, True, "2"])
def test_a_step_that_explodes_is_refused_by_name(decoder, step):
    schema = {"type": "number", "multipleOf": step}
    message = refusal(decoder, json_schema(schema))
    assert "'multipleOf'" in message
    if isinstance(step, int | float) and step > 1:
        assert str(MAX_MULTIPLE) in message
        assert str(step) in message
    lenient = json_schema(schema, is_strict=False)
    assert decoder.compiler.check(lenient) == (("", "multipleOf"),)


@each(
    ("schema", "ignored"),
    [
        (OBJECT, []),
        ({"type": "array", "uniqueItems": True, "items": {"not": {}}}, ["uniqueItems", "not"]),
        ({"type": "array", "uniqueItems": False}, []),
        ({"type": "string", "format": "made-up"}, ["format"]),
        ({"type": "string", "format": "date", "title": "t", "x-order": 1}, []),
        ({"$ref": "https://example.com/a"}, ["$ref"]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["oneOf"]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, []),
        (
            {"oneOf": [{"properties": {"k": {"enum": 5}}, "required": ["k"]}] * 2},
            ["enum", "oneOf"],
        ),
        ({"uniqueItems": True, "properties": 5}, ["uniqueItems", "properties"]),
    ],
)
def test_keywords_that_a_lenient_schema_loses(decoder, schema, ignored):
    assert lost(decoder, schema) == ignored
