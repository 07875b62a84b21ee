import json

import msgspec
import pytest

from core.contract import grammar
from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.formats import ConstraintFields
from server.translation.formats import _FIELDS, output_format
from server.translation.refusals import _SAMPLING
from tests.support.each import each

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "null"}}}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<x>", "schema": SCHEMA, "end": "</x>"}],
    "triggers": ["<x"],
}
STRICT = grammar.json_schema(SCHEMA)
OF_SCHEMA = grammar.json_schema(SCHEMA, is_strict=False)
OF_TAG = grammar.structural_tags([("<x>", SCHEMA, "</x>")], ["<x"])


def json_schema(**fields):
    return {"type": "json_schema", "json_schema": {"name": "x"} | fields}


@pytest.fixture(params=[ChatCompletionRequest, CompletionRequest])
def ask(request):
    def ask(**fields):
        body = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"} | fields
        if request.param is CompletionRequest:
            del body["messages"]
        else:
            del body["prompt"]
        return output_format(msgspec.json.decode(msgspec.json.encode(body), type=request.param))

    return ask


@each(
    ("name", "value", "expected"),
    [
        ("response_format", {"type": "json_object"}, grammar.json_object()),
        ("response_format", {"type": "json_object", "schema": SCHEMA}, OF_SCHEMA),
        ("response_format", json_schema(schema=SCHEMA), OF_SCHEMA),
        ("response_format", json_schema(schema=SCHEMA, strict=True), STRICT),
        ("response_format", json_schema(schema=SCHEMA, strict=None), OF_SCHEMA),
        ("response_format", json_schema(schema=SCHEMA, strict=False), OF_SCHEMA),
        ("response_format", json_schema(), grammar.json_object()),
        ("response_format", json_schema(schema={}), grammar.json_schema({}, is_strict=False)),
        ("response_format", {"type": "json_schema", "schema": SCHEMA}, OF_SCHEMA),
        ("response_format", TAG, OF_TAG),
        ("structured_outputs", {"json": SCHEMA}, OF_SCHEMA),
        ("structured_outputs", {"json": json.dumps(SCHEMA)}, OF_SCHEMA),
        (
            "structured_outputs",
            {"json": SCHEMA, "disable_any_whitespace": True},
            grammar.json_schema(SCHEMA, is_strict=False, is_compact=True),
        ),
        ("structured_outputs", {"json": SCHEMA, "disable_any_whitespace": False}, OF_SCHEMA),
        ("structured_outputs", {"json": SCHEMA, "regex": None, "json_object": False}, OF_SCHEMA),
        ("structured_outputs", {"json_object": True}, grammar.json_object()),
        (
            "structured_outputs",
            {"json_object": True, "disable_any_whitespace": True},
            grammar.json_object(is_compact=True),
        ),
        ("structured_outputs", {"regex": "a+"}, grammar.regex("a+")),
        ("structured_outputs", {"choice": ["a", "b"]}, grammar.choice(["a", "b"])),
        ("structured_outputs", {"grammar": "root ::= x"}, grammar.lark("root ::= x")),
        ("structured_outputs", {"structural_tag": TAG}, OF_TAG),
        ("structured_outputs", {"structural_tag": json.dumps(TAG)}, OF_TAG),
        ("guided_json", SCHEMA, OF_SCHEMA),
        ("guided_json", json.dumps(SCHEMA), OF_SCHEMA),
        ("guided_json", {}, grammar.json_schema({}, is_strict=False)),
        ("guided_regex", "a+", grammar.regex("a+")),
        ("guided_choice", ["a"], grammar.choice(["a"])),
        ("guided_grammar", "start: x", grammar.lark("start: x")),
        ("guided_json_object", True, grammar.json_object()),
        ("structural_tag", TAG, OF_TAG),
        ("structural_tag", json.dumps(TAG), OF_TAG),
        ("regex", "a+", grammar.regex("a+")),
        ("ebnf", "root ::= x", grammar.lark("root ::= x")),
        ("json_schema", SCHEMA, OF_SCHEMA),
        ("json_schema", json.dumps(SCHEMA), OF_SCHEMA),
        ("grammar", "root ::= x", grammar.lark("root ::= x")),
    ],
)
def test_spellings(ask, name, value, expected):
    assert ask(**{name: value}) == (expected, name)


@each(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": None, "guided_json": None, "structured_outputs": None},
        {"guided_json_object": False},
        {"guided_decoding_backend": "outlines"},
    ],
)
def test_values_without_a_constraint(ask, fields):
    assert ask(**fields) == (None, None)


def test_an_empty_text_is_no_constraint(ask):
    for name in set(_FIELDS) - {"response_format", "structured_outputs", "guided_choice"}:
        if not name.endswith("_object"):
            assert ask(**{name: ""}) == (None, None)
            assert ask(**{name: ""}, guided_choice=["a"])[1] == "guided_choice"
    for kind in ("json", "regex", "grammar", "structural_tag"):
        assert ask(structured_outputs={kind: ""}) == (None, None)
        assert ask(structured_outputs={kind: "", "choice": ["a"]})[0] == grammar.choice(["a"])


def test_an_empty_schema_is_any_json(ask):
    assert ask(json_schema={}, grammar="") == (
        grammar.json_schema({}, is_strict=False),
        "json_schema",
    )


def test_free_text_beside_a_constraint(ask):
    assert ask(response_format={"type": "text"}, regex="a") == (grammar.regex("a"), "regex")


def test_the_order_of_keys_is_kept(ask):
    found, _ = ask(guided_json=SCHEMA)
    assert list(json.loads(found.schema)["properties"]) == ["b", "a"]


@each(
    ("fields", "param", "code"),
    [
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            "guided_regex",
            "invalid_parameter_combination",
        ),
        (
            {"grammar": "x", "structured_outputs": {"regex": "a"}},
            "grammar",
            "invalid_parameter_combination",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "invalid_parameter_combination"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs",
            "invalid_parameter_combination",
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
            "unsupported_parameter",
        ),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "invalid_value"),
        ({"structured_outputs": {"json": "5"}}, "structured_outputs.json", "invalid_type"),
        ({"guided_json": "[]"}, "guided_json", "invalid_type"),
        ({"guided_json": "[" * 100_000}, "guided_json", "invalid_value"),
        ({"response_format": {"type": "structural_tag"}}, "response_format", None),
        ({"response_format": TAG | {"structures": []}}, "response_format", None),
        ({"response_format": TAG | {"triggers": []}}, "response_format", None),
        ({"response_format": TAG | {"structures": [{"begin": "<x"}]}}, "response_format", None),
        ({"structural_tag": {"type": "structural_tag", "format": {}}}, "structural_tag", None),
        ({"structural_tag": {"type": "other"}}, "structural_tag", None),
        ({"structural_tag": TAG | {"triggers": 5}}, "structural_tag", None),
        (
            {"structured_outputs": {"structural_tag": "nonsense"}},
            "structured_outputs.structural_tag",
            "invalid_value",
        ),
    ],
)
def test_invalid_constraints_are_refused(ask, fields, param, code):
    with pytest.raises(InvalidRequest) as caught:
        ask(**fields)
    assert caught.value.param == param
    assert caught.value.code == (code or caught.value.code)


def test_every_constraint_is_read_or_refused():
    """Every constraint is either read here or refused by name."""
    own = set(ConstraintFields.__annotations__)
    assert own == set(_FIELDS) | (own & set(_SAMPLING)) | {"guided_decoding_backend"}
