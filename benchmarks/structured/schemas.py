"""Random JSON Schemas that use every enforced keyword and whose instances are finite."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

_PATTERNS = ("^[a-z]{1,8}$", "^(GET|PUT) /[a-z]{0,5}$", r"^\d{3}-\d{4}$", "^a+b?$")
_FORMATS = ("date", "time", "date-time", "ipv4", "uuid", "email")
_NAMES = ("name", "age", "the city", "tags", "x", "naïve", 'quo"te', "$id", "properties", "a.b")


def random_schema(seed: int) -> Schema:
    """An object schema with up to three levels, sometimes with a recursive definition."""
    rng = random.Random(seed)
    schema = _object(rng, depth=0)
    if rng.random() < 0.4:
        schema["$defs"] = {
            "leaf": _scalar(rng),
            "tree": {
                "type": "object",
                "properties": {
                    "value": {"$ref": "#/$defs/leaf"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
                },
                "required": ["value"],
                "additionalProperties": False,
            },
        }
        schema["properties"]["tree"] = {"$ref": "#/$defs/tree"}
        schema["required"].append("tree")
    schema["title"] = "An annotation"
    return schema


def _value(rng: random.Random, depth: int) -> Schema:
    kinds = [_scalar, _scalar, _string, _either]
    if depth < 3:
        kinds += [lambda rng: _object(rng, depth), lambda rng: _array(rng, depth)]
    return rng.choice(kinds)(rng)


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(_NAMES, rng.randint(1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: _value(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
    }
    if rng.random() < 0.7:
        schema["additionalProperties"] = False
    return schema


def _array(rng: random.Random, depth: int) -> Schema:
    low = rng.randint(0, 2)
    schema: Schema = {
        "type": "array",
        "items": _value(rng, depth + 1),
        "minItems": low,
        "maxItems": low + rng.randint(0, 2),
    }
    if rng.random() < 0.2:
        schema["prefixItems"] = [_scalar(rng)]
    return schema


def _string(rng: random.Random) -> Schema:
    low = rng.randint(0, 5)
    return rng.choice(
        [
            {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 8)},
            {"type": "string", "pattern": rng.choice(_PATTERNS)},
            {"type": "string", "format": rng.choice(_FORMATS), "maxLength": 60},
            {"type": "string", "enum": ["red", "green", 'the "blue"', "🙂 é"]},
        ]
    )


def _scalar(rng: random.Random) -> Schema:
    low = rng.randint(-50, 50)
    return rng.choice(
        [
            {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 1000)},
            {"type": "integer", "exclusiveMinimum": low, "multipleOf": 5, "maximum": low + 100},
            {"type": "number", "minimum": low, "maximum": low + 0.75},
            {"type": "boolean"},
            {"type": "null"},
            {"const": rng.choice([1, "one", None, True, [1, "x"], {"a": 1}])},
            {"enum": [1, "two", None, False, 2.5]},
        ]
    )


def _either(rng: random.Random) -> Schema:
    if rng.random() < 0.5:
        return {"type": ["boolean", "null"]}
    return {"anyOf": [_string(rng), {"type": "null"}, {"type": "integer", "minimum": 3}]}
