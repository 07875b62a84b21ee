"""Tools, tool choices and output constraints decode to what was sent."""

import msgspec
import pytest

from schemas import formats, tools
from tests.support.each import each

SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}


def test_function_tool(chat):
    spec = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
    (tool,) = chat(tools=[{"type": "function", "function": spec}]).tools
    assert tool == tools.FunctionTool(
        function=tools.FunctionDefinition(name="f", description="d", parameters=SCHEMA, strict=True)
    )


def test_custom_tools_are_decoded(chat):
    grammar = {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}}
    custom = {"name": "c", "format": grammar}
    (tool,) = chat(tools=[{"type": "custom", "custom": custom}]).tools
    assert tool == tools.CustomTool(custom=tools.CustomDefinition(name="c", format=grammar))


@pytest.mark.parametrize(
    ("choice", "struct"),
    [
        ({"type": "function", "function": {"name": "f"}}, tools.FunctionToolChoice),
        ({"type": "custom", "custom": {"name": "c"}}, tools.CustomToolChoice),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            tools.AllowedToolsChoice,
        ),
    ],
)
def test_tool_choice_objects(chat, choice, struct):
    decoded = chat(tool_choice=choice).tool_choice
    assert type(decoded) is struct
    assert msgspec.to_builtins(decoded) == choice


@each(
    ("response_format", "struct"),
    [
        ({"type": "text"}, formats.TextFormat),
        ({"type": "json_object"}, formats.JsonObjectFormat),
        ({"type": "json_object", "schema": SCHEMA}, formats.JsonObjectFormat),
        ({"type": "json_schema", "schema": SCHEMA}, formats.JsonSchemaFormat),
        ({"type": "json_schema"}, formats.JsonSchemaFormat),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            formats.JsonSchemaFormat,
        ),
        ({"type": "structural_tag", "format": {"type": "x"}}, formats.StructuralTagFormat),
    ],
)
def test_response_formats(chat, completion, response_format, struct):
    for decode in (chat, completion):
        assert type(decode(response_format=response_format).response_format) is struct


def test_schemas_keep_the_order_of_keys(chat):
    given = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": 1, "a": [None]}}}
    schema = chat(response_format=given).response_format.json_schema.schema
    assert list(schema.items()) == [("b", 1), ("a", [None])]


@each(
    ("fields", "path"),
    [
        ({"response_format": {"type": "xml"}}, "$.response_format.type"),
        ({"response_format": {}}, "$.response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "$.response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
            "$.response_format.json_schema.name",
        ),
        ({"response_format": "text"}, "$.response_format"),
        ({"tools": [{"type": "retrieval"}]}, "$.tools[0].type"),
        ({"tools": [{"type": "function"}]}, "$.tools[0]"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "$.tools[0].function.parameters",
        ),
        ({"tool_choice": {"type": "any"}}, "$.tool_choice.type"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "no", "tools": []},
                }
            },
            "$.tool_choice.allowed_tools.mode",
        ),
        ({"structured_outputs": {"choice": []}}, "$.structured_outputs.choice"),
        ({"guided_choice": []}, "$.guided_choice"),
    ],
)
def test_errors_name_the_path(chat, fields, path):
    with pytest.raises(msgspec.ValidationError) as caught:
        chat(**fields)
    assert str(caught.value).endswith(f" - at `{path}`")


@each(
    "fields",
    [
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": "{}", "disable_any_whitespace": True}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"guided_json": SCHEMA},
        {"guided_regex": "a+"},
        {"guided_choice": ["a"]},
        {"guided_grammar": "root ::= x"},
        {"guided_decoding_backend": "x"},
        {"regex": "a"},
        {"ebnf": "x"},
        {"json_schema": SCHEMA},
        {"json_schema": "{}"},
        {"grammar": "root ::= x"},
        {"mirostat": 2},
        {"dry_multiplier": 0.8},
        {"xtc_probability": 0.5},
        {"n_predict": 5},
        {"n_probs": 5},
        {"repeat_penalty": 1.1},
    ],
)
def test_no_constraint_is_lost_in_decoding(chat, completion, fields):
    (name,) = fields
    for decode in (chat, completion):
        assert getattr(decode(**fields), name) is not None
