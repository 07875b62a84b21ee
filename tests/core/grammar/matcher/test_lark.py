"""Arguments of tool calls that are not JSON: text between markers, and keywords."""

from __future__ import annotations

import json

import pytest

from core.contract.grammar import KeywordArguments, XmlArguments
from tests.support.constrained import Decoder


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


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
def test_text_arguments_follow_their_schema(decoder, own, good, bad):
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
