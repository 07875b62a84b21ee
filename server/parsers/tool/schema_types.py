"""Unquoted values, as XML formats write them, to JSON of the types that a tool's schema allows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from server.parsers.text.json_scan import JsonScanner, Scan

_FIRSTS = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null", '"': "string"}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_ALL = frozenset({"object", "array", "boolean", "null", "number", "integer"})
_KNOWN = _ALL | {"string"}
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_MAX_SCHEMAS = 64


def to_json(text: str, types: frozenset[str]) -> str:
    """Return a value's JSON text: the value itself if it is JSON of an allowed type, else a string.

    ``types`` is empty where the schema does not restrict them: then every JSON value is taken as
    one. A value in quotes is a string that contains the quotes.
    """
    value = text.strip()
    value = _PYTHON.get(value, value)
    scanner = JsonScanner()
    end, clean = scanner.feed(value)
    if end == len(value) and scanner.end() is Scan.DONE:
        kind = _FIRSTS.get(value[0], "number")
        wanted = types or _ALL
        if kind != "string" and (kind in wanted or (kind == "number" and "integer" in wanted)):
            return clean
    return json.dumps(text, ensure_ascii=False)


def types_of(parameters: Mapping[str, Any] | None, key: str) -> frozenset[str]:
    """Return the JSON types that an object's schema allows for a member; empty if unrestricted.

    Follows references within the schema, unions, enumerations and constants, up to a fixed
    number of schemas.
    """
    found: set[str] = set()
    pending = [_member(parameters, "properties", key)]
    for _ in range(_MAX_SCHEMAS):
        if not pending:
            return frozenset(found)
        schema = pending.pop()
        reference = _member(schema, "$ref")
        union = _member(schema, "anyOf") or _member(schema, "oneOf")
        if isinstance(reference, str):
            steps = reference.removeprefix("#").split("/")[1:]
            keys = [step.replace("~1", "/").replace("~0", "~") for step in steps]
            pending.append(_member(parameters, *keys))
        elif isinstance(union, list):
            pending += union[:_MAX_SCHEMAS]
        elif named := _named(schema):
            found |= named
        else:
            break
    return frozenset()


def _named(schema: Any) -> set[str]:
    """Return the types that a schema names, or those of the values it lists.

    Other names, such as ``any``, restrict nothing.
    """
    named, values = _member(schema, "type"), _member(schema, "enum")
    if isinstance(named, str | list):
        names = [named] if isinstance(named, str) else named
        return {name for name in names if isinstance(name, str)} & _KNOWN
    if isinstance(schema, Mapping) and "const" in schema and not isinstance(values, list):
        values = [schema["const"]]
    return {_type(value) for value in values} if isinstance(values, list) else set()


def _type(value: Any) -> str:
    return _NAMES.get(type(value)) or ("array" if isinstance(value, list) else "object")


def _member(value: Any, *keys: str) -> Any:
    """Return what stands at this path; None if nothing does."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
