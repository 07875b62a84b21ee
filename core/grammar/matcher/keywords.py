"""Keywords of JSON Schema: where schemas stand in a schema, and which words are enforced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str, str | int | None]
"""A keyword, and the key or the index of a schema in its value; None: the value is the schema."""

SCHEMA = frozenset({"items", "additionalProperties"})
LIST_OF_SCHEMAS = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
MAP_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
DEFINITIONS = frozenset({"$defs", "definitions"})
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
COMBINING = ("allOf", "anyOf", "oneOf", "$ref")

NOT_ENFORCED = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "disallow",
        "divisibleBy",
        "else",
        "extends",
        "if",
        "maxContains",
        "minContains",
        "not",
        "nullable",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
        "x-guidance",  # options of llguidance
    }
)
"""Keywords of all drafts and of OpenAPI that are not enforced. Other unknown words are annotations
(JSON Schema 2020-12, core, 6.5)."""

NO_CONSTRAINT: dict[str, tuple[object, ...]] = {
    "dependentRequired": ({},),
    "minContains": (0,),
    "nullable": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}
"""Values of these keywords that constrain nothing."""

FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "time",
        "uri",
        "uuid",
    }
)
FREE_FORMATS = frozenset({"password"})

PAIRS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
"""Limits that contradict each other if the first is above the second."""


def children(schema: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    """The schemas in a prepared schema, one level deep, with their places."""
    for keyword, value in schema.items():
        if keyword in SCHEMA:
            yield (keyword, None), value
        elif keyword in LIST_OF_SCHEMAS:
            yield from (((keyword, index), item) for index, item in enumerate(value))
        elif keyword in MAP_OF_SCHEMAS:
            yield from (((keyword, name), item) for name, item in value.items())


def with_children(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A prepared schema with each of the schemas in it changed, one level deep."""
    result = dict(schema)
    for keyword, value in schema.items():
        if keyword in SCHEMA:
            result[keyword] = change(value)
        elif keyword in LIST_OF_SCHEMAS:
            result[keyword] = [change(item) for item in value]
        elif keyword in MAP_OF_SCHEMAS:
            result[keyword] = {name: change(item) for name, item in value.items()}
    return result


def moved(schema: Any, place: str) -> Any:
    """A prepared schema moved to ``place``, with its references into itself adjusted."""
    if not isinstance(schema, dict):
        return schema
    result = with_children(schema, lambda item: moved(item, place))
    if "$ref" in result:
        result["$ref"] = "#" + place + result["$ref"][1:]
    return result


def references(schema: Any) -> Iterator[str]:
    """The references in a prepared schema."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for _, item in children(schema):
            yield from references(item)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_OF_TYPE: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and value == value // 1,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

TYPES = frozenset(_OF_TYPE)


def is_of_type(value: Any, kind: str) -> bool:
    """Whether a JSON value has a type of JSON Schema."""
    return _OF_TYPE[kind](value)
