"""Numbers in JSON end, whatever the model prefers."""

from __future__ import annotations

import json

import jsonschema
import pytest

from core.contract.grammar import CallMarkup, ToolSpec, json_object, json_schema, regex, tool_calls
from core.grammar.matcher.digits import MAX_DIGITS
from tests.support.constrained import Decoder, tiny
from tests.support.each import each

LONGEST = 3 * (MAX_DIGITS + 8) + 3
"""Characters of a number: whole part, fraction, exponent."""


@pytest.fixture(scope="module", params=["pieces", "bytes"])
def decoder(request):
    return Decoder() if request.param == "pieces" else Decoder(tiny())


def of_property(schema):
    return {
        "type": "object",
        "properties": {"b": schema},
        "required": ["b"],
        "additionalProperties": False,
    }


@each(
    "schema",
    [
        {"type": "integer"},
        {"type": "integer", "minimum": 5},
        {"type": "integer", "maximum": 5},
        {"type": "number"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": ["number", "null"]},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "minItems": 1},
        {"$ref": "#/$defs/n"},
    ],
)
@pytest.mark.parametrize("favourites", ["9", ".9", "0", "e-9", "1."])
def test_a_model_that_likes_digits_ends(decoder, schema, favourites):
    whole = of_property(schema) | {"$defs": {"n": {"type": "number"}}}
    [text] = decoder.run(
        decoder.sequence(json_schema(whole), max_tokens=4 * LONGEST), favourites=favourites
    )
    jsonschema.validate(json.loads(text, parse_int=float), whole)


@each(
    "number",
    [
        str(2**63 - 1),
        str(-(2**63)),
        str(2**64 - 1),
        "1" * MAX_DIGITS,
        repr(1.7976931348623157e308),
        repr(5e-324),
        repr(0.1 + 0.2),
        "1.5E+300",
        "-0.0",
    ],
)
def test_every_integer_of_64_bits_and_double_is_allowed(decoder, number):
    assert decoder.accepts(json_schema({"type": "number"}), number)
    assert decoder.accepts(json_object(), f'{{"a": {number}}}')
    assert decoder.accepts(json_schema({}), f"[{number}, {number}]")


@each("text", ["9" * 60, "0." + "3" * 60, "1e" + "9" * 60, "-" + "9" * 60])
def test_a_number_of_too_many_digits_is_not(decoder, text):
    assert not decoder.accepts(json_schema({"type": "number"}), text)
    assert not decoder.accepts(json_schema({}), f'{{"a": {text}}}')


@each(
    ("schema", "text"),
    [
        ({"type": "string"}, f'"{"9" * 90}"'),
        ({"type": "string", "pattern": "^[0-9]{64}$"}, f'"{"9" * 64}"'),
        ({"type": "string", "pattern": "^[0-9a-f]{64}$"}, f'"{"9" * 64}"'),
        ({"type": "string", "pattern": "^[0-9]+$"}, f'"{"9" * 64}"'),
        ({"const": 10**60}, str(10**60)),
        ({"type": "object"}, json.dumps({"1" * 60: "2" * 60})),
    ],
)
def test_digits_that_are_no_number_are_free(decoder, schema, text):
    assert decoder.accepts(json_schema(schema), text)


def test_a_regex_of_digits_is_obeyed(decoder):
    assert decoder.accepts(regex("[0-9]+"), "9" * 200)


@each(
    "markup",
    [
        CallMarkup(
            trigger="[", opening="[", before="{name}(", after=")", closing="]",
            arguments="keywords",
        ),
        CallMarkup(
            trigger="<f", before="<f={name}>", after="</f>",
            arguments="xml", xml_before="<p={name}>", xml_after="</p>",
        ),
    ],
)  # fmt: skip
def test_numbers_of_calls_end_too(decoder, markup):
    grammar = tool_calls([ToolSpec("f", of_property({"type": "integer"}))], markup, is_single=True)
    [text] = decoder.run(decoder.sequence(grammar, max_tokens=4 * LONGEST), favourites="9")
    assert not text.endswith("…")
