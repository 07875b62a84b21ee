"""What a schema loses when llguidance refuses it: the keyword at fault, and nothing else."""

from __future__ import annotations

import random
import time

import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup, ToolSpec, json_schema, structural_tags, tool_calls
from core.grammar.matcher import matchers
from core.grammar.matcher.matchers import MatcherFactory
from core.grammar.matcher.patterns import EQUAL_PATTERNS
from tests.core.grammar.matcher.test_schema import random_keywords
from tests.support.constrained import Decoder, refusal
from tests.support.each import each

ROLE = {"type": "string", "enum": ["reader", "owner"]}
[EMAIL] = EQUAL_PATTERNS
MARKUPS = {
    "json": CallMarkup(trigger="<", before='<{"name": "{name}", "arguments": ', after="}>"),
    "whole": CallMarkup(
        trigger="{", before='{"name": "{name}", "parameters": ', after="}", only_at_start=True
    ),
    "keywords": CallMarkup(
        trigger="[", opening="[", before="{name}(", after=")", closing="]", arguments="keywords"
    ),
    "xml": CallMarkup(
        trigger="<f", before="<f={name}>", after="</f>",
        arguments="xml", xml_before="<p={name}>", xml_after="</p>",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


def object_of(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def names(decoder, grammar):
    return [keyword for _, keyword in decoder.compiler.check(grammar)]


REFUSED = [
    ({"type": "string", "pattern": "^(?!x)[a-z]+$"}, ["pattern"]),
    ({"type": "string", "pattern": r"\bx\b"}, ["pattern"]),
    ({"type": "string", "pattern": "["}, ["pattern"]),
    ({"type": "string", "pattern": 5}, ["pattern"]),
    ({"type": "object", "patternProperties": {"(?=a)": {}, "^b": {}}}, ["patternProperties"]),
    ({"type": "any"}, ["type"]),
    ({"type": ["file"]}, ["type"]),
    ({"type": []}, ["type"]),
    ({"enum": []}, ["enum"]),
    ({"enum": "a"}, ["enum"]),
    ({"type": "integer", "enum": ["a"]}, ["type", "enum"]),
    ({"type": "integer", "enum": [1.5]}, ["type", "enum"]),
    ({"type": "string", "const": 5}, ["type", "const"]),
    ({"type": "integer", "minimum": 3, "maximum": 2}, ["minimum", "maximum"]),
    ({"type": "string", "minLength": 3, "maxLength": 2}, ["minLength", "maxLength"]),
    ({"type": "array", "minItems": 3, "maxItems": 2}, ["minItems", "maxItems"]),
    ({"type": "string", "pattern": "^a$", "minLength": 3}, ["pattern", "minLength"]),
    ({"type": "string", "format": "date", "pattern": "^x$"}, ["format", "pattern"]),
    ({"type": "string", "maxLength": -1}, ["maxLength"]),
    ({"type": "string", "maxLength": 1.5}, ["maxLength"]),
    ({"type": "number", "minimum": "1"}, ["minimum"]),
    ({"type": "integer", "multipleOf": 0}, ["multipleOf"]),
    ({"anyOf": []}, ["anyOf"]),
    ({"anyOf": ["string"]}, ["anyOf"]),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, ["allOf"]),
    ({"$ref": "#/nowhere"}, ["$ref"]),
    ({"$ref": 5}, ["$ref"]),
    ({"$ref": "https://example.com/x"}, ["$ref"]),
    ({"type": "array", "items": "string"}, ["items"]),
    ({"type": "array", "items": {"type": "string", "pattern": "(?=a)"}}, ["pattern"]),
    ({"type": "object", "properties": "a"}, ["properties"]),
    ({"type": "object", "properties": {"a": "the name"}}, ["properties.a"]),
    ({"type": "object", "properties": {}, "required": True}, ["required"]),
    ({"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": False},
     ["minProperties"]),
    ({"type": "object", "additionalProperties": "x"}, ["additionalProperties"]),
    ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, ["oneOf"]),
    ({"oneOf": [{"type": "string"}, {"maxLength": 3}], "anyOf": [{}]}, ["oneOf"]),
]  # fmt: skip


@each(("own", "dropped"), REFUSED)
def test_a_keyword_that_is_refused_is_dropped_alone(decoder, own, dropped):
    grammar = json_schema(object_of(role=ROLE, z=own, list={"maxItems": 1}), is_strict=False)
    assert names(decoder, grammar) == dropped
    assert not decoder.accepts(grammar, '{"role": "x", "z": 1, "list": 1}')
    assert not decoder.accepts(grammar, '{"role": "owner"}')


@each(("own", "dropped"), REFUSED)
def test_a_strict_schema_is_refused_with_the_keyword(decoder, own, dropped):
    message = refusal(decoder, json_schema(object_of(role=ROLE, z=own)))
    assert f"'{dropped[0]}'" in message
    assert "(at 'properties.z" in message or "$ref" in message
    for words in ("coerce_one_of", "regex parse error", "%json", "failed to compile"):
        assert words not in message


@pytest.mark.parametrize("name", MARKUPS)
@each(("own", "dropped"), REFUSED)
def test_a_tool_loses_nothing_by_another_one(decoder, name, own, dropped):
    share, sound = object_of(role=ROLE, z=own), object_of(level=ROLE)
    tools = [ToolSpec("share", share), ToolSpec("set", sound)]
    grammar = tool_calls(tools, MARKUPS[name])
    assert decoder.compiler.check(grammar) == tuple(("share", keyword) for keyword in dropped)
    calls = {
        "json": '<{"name": "set", "arguments": {"level": "%s"}}>',
        "whole": '{"name": "set", "parameters": {"level": "%s"}}',
        "keywords": '[set(level="%s")]',
        "xml": "<f=set><p=level>%s</p></f>",
    }
    assert decoder.accepts(grammar, calls[name] % "owner")
    assert not decoder.accepts(grammar, calls[name] % "goat")
    share_call = calls[name].replace("set", "share").replace("level", "role")
    assert not decoder.accepts(grammar, (share_call % "goat")[:-4])


@pytest.mark.parametrize("name", MARKUPS)
def test_a_strict_tool_is_named_with_its_keyword(decoder, name):
    bad = object_of(z={"type": "string", "pattern": "(?=a)"})
    tools = [ToolSpec("set", object_of(a=ROLE)), ToolSpec("share", bad, is_strict=True)]
    message = refusal(decoder, tool_calls(tools, MARKUPS[name]))
    assert "tool 'share'" in message
    assert "'pattern'" in message
    assert "look-around" in message


def test_what_has_the_wrong_property_stays(decoder):
    """Keywords beside the dropped one, and beside its property, are enforced."""
    own = {"type": "string", "maxLength": 3, "pattern": "(?!x)"}
    grammar = json_schema(object_of(z=own), is_strict=False)
    assert decoder.accepts(grammar, '{"z": "abc"}')
    assert not decoder.accepts(grammar, '{"z": "abcd"}')
    assert not decoder.accepts(grammar, '{"z": 1}')


def test_a_schema_of_an_array_stays_one(decoder):
    items = {"type": "string", "pattern": "(?=a)"}
    grammar = json_schema({"type": "array", "items": items, "maxItems": 1}, is_strict=False)
    assert decoder.accepts(grammar, '["b"]')
    assert not decoder.accepts(grammar, "{}")
    assert not decoder.accepts(grammar, '["b", "b"]')


def test_the_place_of_an_error_is_not_its_reference(decoder):
    schema = object_of(a={"$ref": "#/$defs/e"}, b={"$ref": "#/$defs/e"}, next={"$ref": "#/$defs/t"})
    schema["$defs"] = {
        "e": {"type": "string", "pattern": "(?=a)", "maxLength": 2},
        "t": {"type": ["object", "null"], "properties": {"t": {"$ref": "#/$defs/t"}}},
    }
    grammar = json_schema(schema, is_strict=False)
    assert names(decoder, grammar) == ["pattern"]
    assert decoder.accepts(grammar, '{"a": "xy", "b": "xy", "next": {"t": {}}}')
    assert not decoder.accepts(grammar, '{"a": "xy", "b": "xyz", "next": {}}')
    assert not decoder.accepts(grammar, '{"a": "xy", "b": "xy", "next": {"u": 1}}')


def test_a_loop_of_references_is_dropped(decoder):
    grammar = json_schema(object_of(a={"$ref": "#/$defs/e"}, b=ROLE) | {
        "$defs": {"e": {"$ref": "#/$defs/f"}, "f": {"$ref": "#/$defs/e"}},
    }, is_strict=False)  # fmt: skip
    assert set(names(decoder, grammar)) == {"$ref"}
    assert not decoder.accepts(grammar, '{"a": 1, "b": 1}')


@each(
    ("schema", "text", "other"),
    [
        ({"type": "object", "properties": {}, "required": None}, "{}", '{"a": 1}'),
        ({"type": "object", "properties": None}, '{"a": 1}', "[]"),
        ({"type": None, "properties": {}}, "{}", '{"a": 1}'),
        (object_of(z={"type": "string", "pattern": None}), '{"z": "a"}', '{"z": 1}'),
        (object_of(z={"type": "string", "maxLength": 2.0}), '{"z": "ab"}', '{"z": "abc"}'),
        (object_of(z={"const": None}), '{"z": null}', '{"z": 1}'),
        (object_of(z={"enum": None, "type": "null"}), '{"z": null}', '{"z": 1}'),
        (object_of(z={"anyOf": None, "$ref": None, "type": "integer"}), '{"z": 1}', '{"z": "a"}'),
        (object_of(z={"type": "array", "items": None, "maxItems": 1}), '{"z": [1]}', '{"z": 1}'),
        (object_of(z={"type": "integer", "multipleOf": None}), '{"z": 1}', '{"z": 1.5}'),
        (object_of(z={"propertyOrdering": ["a"], "errorMessage": {}, "example": 1, "x-a": 1,
                      "madeUp": 1, "type": "integer"}), '{"z": 1}', '{"z": "a"}'),
        (object_of(z={"type": "object", "propertyNames": {"type": "string"},
                      "additionalProperties": {"type": "null"}}), '{"z": {"a": null}}', '{"z": 1}'),
    ],
)  # fmt: skip
def test_null_and_annotations_are_absent_strict_or_not(decoder, schema, text, other):
    for is_strict in (True, False):
        grammar = json_schema(schema, is_strict=is_strict)
        assert names(decoder, grammar) == []
        assert decoder.accepts(grammar, text)
        assert not decoder.accepts(grammar, other)
    tool = tool_calls([ToolSpec("t", schema, is_strict=True)], MARKUPS["json"])
    assert names(decoder, tool) == []


def test_misplaced_required_is_no_property(decoder):
    coin = {"type": "object", "properties": {"coin": {"enum": ["x"]}, "required": ["coin"]}}
    grammar = tool_calls([ToolSpec("t", coin)], MARKUPS["json"])
    assert decoder.compiler.check(grammar) == (("t", "properties.required"),)
    assert decoder.accepts(grammar, '<{"name": "t", "arguments": {"coin": "x"}}>')
    assert not decoder.accepts(grammar, '<{"name": "t", "arguments": {"coin": "y"}}>')
    assert not decoder.accepts(grammar, '<{"name": "t", "arguments": {"required": 1}}>')
    strict = tool_calls([ToolSpec("t", coin, is_strict=True)], MARKUPS["json"])
    assert "tool 't'" in refusal(decoder, strict)


@pytest.mark.parametrize("name", ["json", "whole"])
@each("schema", [{"type": "string"}, {"type": "array", "items": {}}, {"type": ["string", "null"]}])
def test_arguments_are_an_object_whatever_the_schema(decoder, name, schema):
    before, after = MARKUPS[name].before.replace("{name}", "t"), MARKUPS[name].after
    grammar = tool_calls([ToolSpec("t", schema)], MARKUPS[name], is_single=True)
    assert decoder.compiler.check(grammar) == (("t", "type"),)
    assert decoder.accepts(grammar, before + '{"a": 1}' + after)
    assert not decoder.accepts(grammar, before + '"goat"' + after)
    strict = tool_calls([ToolSpec("t", schema, is_strict=True)], MARKUPS[name])
    assert "'type'" in refusal(decoder, strict)


def test_a_form_of_calls_names_what_it_cannot_enforce(decoder):
    schema = object_of(a={"type": "string", "format": "email"}) | {"minProperties": 1}
    grammar = tool_calls([ToolSpec("t", schema)], MARKUPS["xml"])
    assert set(names(decoder, grammar)) == {"minProperties", "format"}
    date = tool_calls([ToolSpec("t", object_of(a={"type": "string", "format": "date"}))],
                      MARKUPS["xml"], is_single=True)  # fmt: skip
    assert names(decoder, date) == []
    assert decoder.accepts(date, "<f=t><p=a>2024-02-29</p></f>")
    assert not decoder.accepts(date, "<f=t><p=a>2023-02-29</p></f>")


@pytest.mark.parametrize("count", [1, 2])
def test_a_number_of_keys_costs_no_property(decoder, count):
    own = {"minProperties": count, "type": "object", "properties": {"a": ROLE, "b": {}, "c": {}}}
    grammar = json_schema(object_of(z=own), is_strict=False)
    assert names(decoder, grammar) == ["minProperties"][: count - 1]
    assert decoder.accepts(grammar, '{"z": {"a": "owner", "b": 1}}')
    assert decoder.accepts(grammar, '{"z": {}}') == (count > 1)
    assert not decoder.accepts(grammar, '{"z": {"a": "goat", "b": 1}}')
    assert not decoder.accepts(grammar, '{"z": {"d": 1, "e": 1}}')


def test_a_forbidden_key_that_is_required(decoder):
    """The other properties keep their schemas."""
    grammar = json_schema(object_of(role=ROLE, z=False), is_strict=False)
    assert names(decoder, grammar) == ["properties", "required"]
    assert decoder.accepts(grammar, '{"role": "owner", "z": 1}')
    assert not decoder.accepts(grammar, '{"role": "goat", "z": 1}')
    assert "'properties' and 'required'" in refusal(decoder, json_schema(object_of(z=False)))


@pytest.mark.parametrize("name", ["keywords", "xml"])
def test_a_property_that_nothing_satisfies_is_left_out(decoder, name):
    schema = object_of(a=ROLE, b=False)
    grammar = tool_calls([ToolSpec("t", schema)], MARKUPS[name], is_single=True)
    assert names(decoder, grammar) == ["required"]
    call = {"keywords": '[t(a="owner")]', "xml": "<f=t><p=a>owner</p></f>"}[name]
    assert decoder.accepts(grammar, call)
    optional = tool_calls([ToolSpec("t", schema | {"required": ["a"]})], MARKUPS[name])
    assert names(decoder, optional) == []


def test_structural_tags_are_not_strict(decoder):
    schema = object_of(a={"type": "string", "pattern": "(?=a)"})
    assert names(decoder, structural_tags([("<x>", schema, "</x>")], ["<x"])) == ["pattern"]


def test_a_union_whose_tag_has_a_default(decoder):
    def option(name):
        tag = {"const": name, "default": name, "type": "string"}
        return {"type": "object", "properties": {"kind": tag, "n": {"type": "integer"}}}

    union = {"oneOf": [option("alpha"), option("beta")], "discriminator": {"propertyName": "kind"}}
    grammar = json_schema(object_of(item=union), is_strict=False)
    assert names(decoder, grammar) == ["oneOf"]
    assert decoder.accepts(grammar, '{"item": {"kind": "beta", "n": 1}}')
    assert not decoder.accepts(grammar, '{"item": {"kind": "gamma"}}')
    assert not decoder.accepts(grammar, '{"item": 5}')
    assert "anyOf" in refusal(decoder, json_schema(object_of(item=union)))


def test_a_pattern_with_an_equal_one_is_kept(decoder):
    own = {"type": "string", "format": "email", "pattern": EMAIL}
    grammar = json_schema(object_of(e=own))
    assert names(decoder, grammar) == []
    assert decoder.accepts(grammar, '{"e": "a.b@ab.org"}')
    assert not decoder.accepts(grammar, '{"e": "a..b@ab.org"}')
    assert not decoder.accepts(grammar, '{"e": "a\'@ab.org"}')


def test_tools_that_are_too_complex_together_are_widened(monkeypatch, decoder):
    """Their names and arguments' names stay, and the answer says so."""
    whole = MatcherFactory._try

    def limited(self, text):
        return (None, "too complex") if text.count("%json") > 1 and "owner" in text else whole(
            self, text
        )  # fmt: skip

    monkeypatch.setattr(matchers.MatcherFactory, "_try", limited)
    grammar = tool_calls([ToolSpec(n, object_of(a=ROLE)) for n in "fg"], MARKUPS["json"])
    assert decoder.compiler.check(grammar) == (("f", "parameters"), ("g", "parameters"))
    assert decoder.accepts(grammar, '<{"name": "f", "arguments": {"a": "goat"}}>')
    assert not decoder.accepts(grammar, '<{"name": "f", "arguments": 5}>')


ODD = ("(?=a)b", "[", "any", {"type": "string", "pattern": "(?!x)"}, {"(?=a)": {}}, -1, 5.0, 1e300)


def odd_keywords(rng):
    schema = random_keywords(rng)
    for keyword in list(schema):
        if rng.random() < 0.2:
            schema[keyword] = rng.choice(ODD)
    return schema


@pytest.mark.slow
def test_random_schemas_always_compile_without_strict(decoder):
    rng = random.Random(5)
    for _ in range(8):
        schema = object_of(a=odd_keywords(rng), b=odd_keywords(rng))
        decoder.compiler.check(json_schema(schema, is_strict=False))
        for markup in MARKUPS.values():
            decoder.compiler.check(tool_calls([ToolSpec("t", schema)], markup))


def test_the_search_is_limited(decoder):
    bad = {f"p{i}": {"type": "string", "pattern": f"(?={i})"} for i in range(1000)}
    start = time.thread_time()
    with pytest.raises(InvalidRequest, match="too many keywords"):
        decoder.compiler.check(json_schema(object_of(**bad), is_strict=False))
    assert time.thread_time() - start < 2
    some = dict(list(bad.items())[:20])
    assert names(decoder, json_schema(object_of(**some), is_strict=False)) == ["pattern"]
