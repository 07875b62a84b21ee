"""Arguments of calls in JSON, XML and Python form: what is enforced in each, and what is named."""

from __future__ import annotations

import pytest

from core.contract.grammar import ToolSpec, tool_calls
from tests.core.grammar.matcher.test_fitting import MARKUPS, ROLE, names, object_of
from tests.support.constrained import Decoder
from tests.support.each import each


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


TREE = object_of(name={"type": "string"}, count={"$ref": "#/properties/size"}) | {
    "required": ["name"]
}
TREE["properties"] |= {"size": {"type": "integer"}, "kids": {"items": {"$ref": "#"}, "maxItems": 2}}


@each(
    ("name", "text"),
    [
        ("json", '<{"name": "t", "arguments": {"name": "a", "count": %s, "kids": %s}}>'),
        ("keywords", '[t(name="a", count=%s, kids=%s)]'),
        ("xml", "<f=t><p=name>a</p><p=count>%s</p><p=kids>%s</p></f>"),
    ],
)
def test_references_into_the_arguments(decoder, name, text):
    grammar = tool_calls([ToolSpec("t", TREE)], MARKUPS[name], is_single=True)
    assert names(decoder, grammar) == []
    assert decoder.accepts(grammar, text % (1, '[{"name": "b", "kids": [{"name": "c"}]}]'))
    assert not decoder.accepts(grammar, text % ('"a"', "[]"))
    assert not decoder.accepts(grammar, text % (1, "[[]]"))
    assert not decoder.accepts(grammar, text % (1, '[{"name": 1}]'))


@pytest.mark.parametrize("name", MARKUPS)
def test_arguments_that_are_a_reference(decoder, name):
    """As zod-to-json-schema writes them."""
    whole = {"$ref": "#/definitions/T", "definitions": {"T": object_of(role=ROLE), "n": {}}}
    grammar = tool_calls([ToolSpec("t", whole)], MARKUPS[name], is_single=True)
    assert names(decoder, grammar) == []
    call = {
        "keywords": '[t(role="%s")]',
        "xml": "<f=t><p=role>%s</p></f>",
        "json": '<{"name": "t", "arguments": {"role": "%s"}}>',
        "whole": '{"name": "t", "parameters": {"role": "%s"}}',
    }[name]
    assert decoder.accepts(grammar, call % "owner")
    assert not decoder.accepts(grammar, call % "goat")
    other = whole | {"properties": {"a": ROLE}}
    dropped = names(decoder, tool_calls([ToolSpec("t", other)], MARKUPS[name]))
    assert dropped == (["$ref"] if name in ("keywords", "xml") else [])


def test_an_unquoted_string_loses_nothing_in_silence(decoder):
    def calls(**own):
        schema = object_of(a={"type": "string", **own})
        return tool_calls([ToolSpec("t", schema)], MARKUPS["xml"], is_single=True)

    options = [{"pattern": "^a"}, {"pattern": "b$"}]
    assert names(decoder, calls(allOf=options)) == ["allOf"]
    assert names(decoder, calls(anyOf=options)) == ["anyOf"]
    assert names(decoder, calls(enum=["a", "b"], pattern="^c$")) == ["enum", "pattern"]
    assert names(decoder, calls(pattern=r"^[^\s\S]$")) == ["type", "pattern"]
    both = calls(enum=["a.", "b."], pattern="^a")
    assert names(decoder, both) == []
    assert decoder.accepts(both, "<f=t><p=a>a.</p></f>")
    for other in ("b.", "ab"):
        assert not decoder.accepts(both, f"<f=t><p=a>{other}</p></f>")
