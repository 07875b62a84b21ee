from server.parsers.tool.schema_types import to_json, types_of
from tests.support.each import each


@each(
    ("schema", "types"),
    [
        ({"type": "integer"}, {"integer"}),
        ({"type": "any"}, set()),
        ({"type": ["file", "null"]}, {"null"}),
        ({"type": ["array", "null"]}, {"array", "null"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "string"}, {}]}, set()),
        (
            {"enum": ["a", 1, 2.5, None, True, [], {}]},
            {"string", "integer", "number", "null", "boolean", "array", "object"},
        ),
        ({"const": None}, {"null"}),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"$ref": "#/$defs/missing/deeper"}, set()),
        ({"$ref": "other.json"}, set()),
        ({}, set()),
        (True, set()),
    ],
)
def test_types_of_returns_the_types_that_a_schema_allows(schema, types):
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}] * 100}
    definitions = {"a/b": {"type": "boolean"}, "loop": loop}
    parameters = {"properties": {"x": schema}, "$defs": definitions}
    assert types_of(parameters, "x") == types
    assert types_of(parameters, "y") == set()


@each(
    ("text", "types", "expected"),
    [
        (" 5 ", {"integer"}, "5"),
        ("5", {"string", "integer"}, "5"),
        ("05", {"integer"}, '"05"'),
        ("5", {"boolean"}, '"5"'),
        ("None", {"null"}, "null"),
        ("null", {"string"}, '"null"'),
        ('"quoted"', {"integer"}, r'"\"quoted\""'),
        ("[1] 2", {"array"}, '"[1] 2"'),
        ("", set(), '""'),
        ("-", set(), '"-"'),
        ("é", set(), '"é"'),
    ],
)
def test_a_value_of_another_type_becomes_a_string(text, types, expected):
    assert to_json(text, frozenset(types)) == expected
