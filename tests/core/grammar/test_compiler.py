"""What the compiler takes, what it refuses, and that neither takes long."""

from __future__ import annotations

import json
import random
import threading
import time

import jsonschema
import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import (
    CallMarkup,
    KeywordArguments,
    ToolSpec,
    XmlArguments,
    after,
    choice,
    json_object,
    json_schema,
    lark,
    regex,
    structural_tags,
    tool_calls,
)
from core.contract.params import SamplingParams
from core.grammar import compiler as compiler_module
from core.grammar.compiler import GrammarCompiler
from core.text.tokenizer import Tokenizer
from tests.support.constrained import Decoder, builtin
from tests.support.tokenizers import word_piece


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


def refusal(decoder, grammar):
    with pytest.raises(InvalidRequest) as refused:
        decoder.compiler.check(grammar, param="response_format")
    assert refused.value.param == "response_format"
    assert len(refused.value.message) < 400
    return refused.value.message


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


# Keywords


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
        ("madeUp", 1),
    ],
)
def test_keywords_that_cannot_be_enforced_are_refused_by_name(decoder, keyword, value):
    assert f"'{keyword}'" in refusal(decoder, json_schema({keyword: value}))
    deep = {"type": "array", "items": {"anyOf": [{"type": "null"}, {keyword: value}]}}
    assert f"'{keyword}'" in refusal(decoder, json_schema(deep))
    decoder.compiler.check(json_schema({"type": "object", keyword: value}, is_strict=False))


def test_annotations_say_nothing(decoder):
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


def test_formats_that_are_not_enforced_are_refused_by_name(decoder):
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
def test_schemas_that_make_no_sense_are_refused(decoder, schema):
    refusal(decoder, json_schema(schema))


def test_what_the_sdk_makes_of_typed_models(decoder):
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


def test_objects_are_closed_unless_that_would_forbid_what_another_part_allows(decoder):
    assert not decoder.accepts(json_schema(OBJECT), '{"a": 1, "b": 2}')
    assert decoder.accepts(json_schema(OBJECT, is_closed=False), '{"a": 1, "b": 2}')
    assert decoder.accepts(json_schema(OBJECT | {"additionalProperties": True}), '{"a": 1, "b": 2}')
    combined = {"allOf": [OBJECT, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    assert decoder.accepts(json_schema(combined), '{"a": 1, "b": 2}')


def test_older_spellings(decoder):
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


def odd_schema(rng, depth=0):
    """Keywords and values thrown together, one in two of the kind that belongs there."""
    schema = {}
    for keyword in rng.sample(_KEYWORDS, rng.randint(0, 3)):
        value = rng.choice(_VALUES)
        if rng.random() < 0.8 and depth < 3:
            if keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
                value = [odd_schema(rng, depth + 1) for _ in range(rng.randint(1, 2))]
            elif keyword in ("items", "additionalProperties"):
                value = odd_schema(rng, depth + 1)
            elif keyword in ("properties", "$defs", "patternProperties"):
                value = {name: odd_schema(rng, depth + 1) for name in ("a", "b")}
            elif keyword == "$ref":
                value = rng.choice(["#", "#/$defs/a", "#/properties/b"])
            elif keyword == "type":
                value = rng.choice(["string", "integer", "object", "array", "null"])
        schema[keyword] = value
    return schema


def test_odd_schemas_are_enforced_or_refused(decoder):
    rng = random.Random(0)
    schemas, sequences = [], []
    while len(sequences) < 60:
        schema = odd_schema(rng)
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


# Hostile ones


def chain(size):
    definitions = {
        f"d{i}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}},
            "required": ["a"],
        }
        for i in range(size)
    }
    return {"$defs": definitions | {f"d{size}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def nested(size):
    schema = {"type": "integer"}
    for _ in range(size):
        schema = {"type": "array", "items": schema}
    return schema


def rules(size, name="a"):
    body = "\n".join(f'{name}{i}: "x" {name}{i + 1}' for i in range(size))
    return f'start: {name}0\n{body}\n{name}{size}: "x"'


SERVED = {
    "recursion": json_schema({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": []}),
    "10,000 members": json_schema({"enum": [f"member number {i}" for i in range(10_000)]}),
    "10,000 choices": choice([f"option {i}" for i in range(10_000)]),
    "bomb": regex("((a{0,1000}){0,1000}){0,1000}"),
    "backtracking": regex("(x+x+)+y"),
    "long string": json_schema({"type": "string", "minLength": 10**7}),
    "many items": json_schema({"type": "array", "items": nested(2), "minItems": 10**6}),
    "chain": json_schema(chain(900)),
    "left recursion": lark('start: start "a" | "b"'),
    "ambiguity": lark('start: s\ns: s s s | s s | "a" | '),
    "doubling": lark(
        "start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60)) + '\na60: "x"'
    ),
    "rules": lark(rules(4000)),
    "terminals": lark(rules(4000, "A")),
    "properties": json_schema(
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1000)}}
    ),
}

REFUSED = {
    "1 MB": json_schema({"enum": [f"{i:0100}" for i in range(10_000)]}),
    "chain": json_schema(chain(3000)),
    "references": json_schema(
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)} | {"d5000": {}},
         "$ref": "#/$defs/d0"}
    ),
    "nesting": json_schema(nested(300)),
    "look-ahead": regex("(?=a)b"),
    "look-behind": regex("(?<!a)b"),
    "word boundary": regex(r"a\b"),
    "back-reference": regex(r"(a+)\1"),
    "parentheses": regex("(" * 5000),
    "no regex": regex("*"),
    "surrogate": regex("\ud800"),
    "no choice": choice([]),
    "empty loop": lark("start: a\na: b\nb: a"),
    "deep Lark": lark("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    "deep GBNF": lark("root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
    "many rules": lark(rules(20_000)),
    "no grammar": lark("hello"),
    "empty grammar": lark(""),
    "unknown rule": lark("start: foo"),
    "unknown GBNF rule": lark("root ::= foo"),
    "unknown special token": lark("start: <|no_such_token|>"),
    "intersections": lark("start: A\nA: /(.*a.{12}b.*)/ & /(.*c.{11}d.*)/ & ~/(.*e.{10}f.*)/"),
    "all of": json_schema(
        {"allOf": [{"anyOf": [{"required": [f"{i}.{j}"]} for j in range(8)]} for i in range(12)]}
    ),
    "patterns": json_schema(
        {"type": "object", "patternProperties": {f"^x{i}[a-z]": {} for i in range(300)}}
    ),
    "no trigger": structural_tags([("<a>", {}, "</a>")], ["<b>"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_hostile_grammars_that_are_served(decoder, name):
    start = time.monotonic()
    decoder.compiler.check(SERVED[name])
    assert time.monotonic() - start < 5  # a second, on a machine that does nothing else
    decoder.run(decoder.sequence(SERVED[name], max_tokens=12))


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_grammars_that_are_refused(decoder, name):
    start = time.monotonic()
    refusal(decoder, REFUSED[name])
    assert time.monotonic() - start < 5
    sequence = decoder.sequence(choice(["yes"]))
    assert decoder.run(sequence) == ["yes"]


def test_a_schema_nested_beyond_all_bounds_is_refused_when_it_is_made():
    with pytest.raises(InvalidRequest):
        json_schema(nested(200_000))


def test_a_grammar_that_grows_too_complex_ends_its_own_request(decoder):
    hostile = regex("(.{0,300}a){1,30}")
    sequences = [
        decoder.sequence(hostile, max_tokens=400),
        decoder.sequence(regex("[a-z]{400}"), max_tokens=400),
    ]
    ok = 0
    for _ in range(400):
        failed = decoder.step(sequences)
        assert not failed[-1]
        if failed[0] and len(sequences) == 2:
            del sequences[0]
        ok += 1
        if decoder.is_done(sequences[-1]):
            break
    assert ok > 50
    # Others may ask for the same again: they start anew.
    decoder.step([decoder.sequence(hostile)])


# The cache


def test_grammars_are_compiled_once(monkeypatch):
    decoder = Decoder()
    compiled = []
    whole = decoder.compiler._compile
    monkeypatch.setattr(
        decoder.compiler, "_compile", lambda *args: compiled.append(1) or whole(*args)
    )
    for _ in range(3):
        decoder.compiler.check(json_schema(OBJECT))
        decoder.compiler.matcher(json_schema(dict(OBJECT)))
    assert len(compiled) == 1
    decoder.compiler.forget(json_schema(OBJECT))
    decoder.compiler.check(json_schema(OBJECT))
    assert len(compiled) == 2


def test_few_grammars_are_kept(monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_COMPILED", 4)
    decoder = Decoder()
    for i in range(10):
        decoder.compiler.check(choice([str(i)]))
    assert len(decoder.compiler._compiled) == 4
    monkeypatch.setattr(compiler_module, "MAX_COMPILED_BYTES", 100)
    decoder.compiler.check(choice(["x"]))
    assert not decoder.compiler._compiled
    assert decoder.compiler._num_bytes == 0
    assert decoder.accepts(choice(["x"]), "x")  # though nothing was kept


def test_a_grammar_used_often_is_compiled_anew(monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_USES", 3)
    decoder = Decoder()
    for _ in range(10):
        decoder.compiler.check(choice(["x"]))
    assert decoder.compiler._compiled
    assert decoder.accepts(choice(["x"]), "x")


def test_many_threads_may_check_at_once():
    decoder = Decoder()
    errors = []

    def check(index):
        try:
            for i in range(10):
                decoder.compiler.check(json_schema({"const": (index * i) % 7}))
                decoder.compiler.matcher(choice([str(i)]))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=check, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_tokenizer_without_bytes_takes_no_grammar():
    tokenizer = Tokenizer(word_piece())
    compiler = GrammarCompiler(tokenizer.vocabulary, [2], vocab_size=tokenizer.vocab_size)
    with pytest.raises(InvalidRequest):
        compiler.check(json_object())
    no_end = GrammarCompiler(builtin().vocabulary, [], vocab_size=2048)
    with pytest.raises(InvalidRequest):
        no_end.check(json_object())


def test_min_tokens_and_a_format_that_ends_by_itself_are_refused():
    with pytest.raises(InvalidRequest) as refused:
        SamplingParams(max_tokens=9, min_tokens=3, grammar=json_object())
    assert refused.value.param == "min_tokens"
    tags = structural_tags([("<a>", {}, "</a>")], ["<a>"])
    SamplingParams(max_tokens=9, min_tokens=3, grammar=after(tags))


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("a<b\n", True),
        ("", False),
        ("123456789012", False),
    ],
)
def test_text_arguments_keep_their_length(decoder, value, is_valid):
    schema = {
        "type": "object",
        "properties": {"s": {"type": "string", "minLength": 2, "maxLength": 9}},
        "required": ["s"],
    }
    grammar = XmlArguments(json.dumps(schema), "<{name}>", "</>")
    assert decoder.accepts(grammar, f"<s>{value}</>") is is_valid


@pytest.mark.parametrize(
    ("own", "good", "bad"),
    [
        ({"enum": ["x y", "z"]}, "x y", "y"),
        ({"const": "x"}, "x", "y"),
        ({"pattern": "^[ab]+$"}, "abba", "abc"),
        ({"pattern": "b"}, "abc", "ac"),
        ({}, 'any "thing" <i>\n', None),
    ],
)
def test_text_arguments_are_limited_by_their_schema(decoder, own, good, bad):
    schema = {"properties": {"s": {"type": "string", **own}}, "required": ["s"]}
    grammar = XmlArguments(json.dumps(schema), "<{name}>", "</>")
    assert decoder.accepts(grammar, f"<s>{good}</>")
    assert bad is None or not decoder.accepts(grammar, f"<s>{bad}</>")


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("a=1", True),
        ("a=1, b=true, c=[null]", True),
        ("a=1, c=[]", True),
        ("b=true, a=1", False),
        ("b=true", False),
        ("a=1, ", False),
        ("", False),
    ],
)
def test_keyword_arguments(decoder, text, is_valid):
    schema = {
        "$defs": {"n": {"type": "null"}},
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "boolean"},
            "c": {"type": "array", "items": {"$ref": "#/$defs/n"}},
        },
        "required": ["a"],
    }
    assert decoder.accepts(KeywordArguments(json.dumps(schema)), text) is is_valid


def test_strict_tools_refuse_what_they_cannot_enforce(decoder):
    markup = CallMarkup(trigger="<", before="<{name}>", after="</>")
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    assert "'not'" in refusal(decoder, tool_calls([ToolSpec("f", schema, is_strict=True)], markup))
    decoder.compiler.check(tool_calls([ToolSpec("f", schema)], markup))
