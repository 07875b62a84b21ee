"""JSON Schemas of the wire types, with the limits of this server.

Litestar's own schemas lose limits of zero, nested limits and the discriminators of unions.
msgspec's schemas of the same types keep them and use the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from schemas.base import ResponseModel
from schemas.tokenize import TokenizeRequest
from server.translate.unsupported import refused_fields

REFERENCE = "#/components/schemas/{name}"
NOT_SUPPORTED = "Not supported by this server: must be null."

_NULL = {"type": "null"}

Json = dict[str, Any]

_RULES: dict[type[msgspec.Struct], Json] = {
    TokenizeRequest: {
        "oneOf": [
            {"required": [one], "properties": {one: {"not": _NULL}, other: _NULL}}
            for one, other in (("prompt", "messages"), ("messages", "prompt"))
        ]
    }
}
"""Rules between fields that msgspec does not express."""


def component_schemas(types: set[type[msgspec.Struct]]) -> Json:
    """Schemas of the types and of every type they contain, by name."""
    ordered = sorted(types, key=lambda type_: type_.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    responses = {type_.__name__: type_ for type_ in _subclasses(ResponseModel)}
    for name, schema in schemas.items():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
        if name in responses:
            schema["required"] = _always_written(responses[name])
    for type_ in ordered:
        schemas[type_.__name__].pop("additionalProperties", None)  # ignored, see server.decoding
        _mark_refused(schemas[type_.__name__]["properties"], refused_fields(type_))
        schemas[type_.__name__].update(_RULES.get(type_, {}))
    return dict(sorted(schemas.items()))


def _mark_refused(properties: Json, fields: Mapping[str, bool]) -> None:
    """Describe the fields that must be null, and those (true) that also take neutral values."""
    for name, has_neutral_values in fields.items():
        if has_neutral_values:
            properties[name]["description"] = "Only values without effect are accepted."
        else:
            properties[name] = _NULL | {"description": NOT_SUPPORTED}


def _always_written(type_: type[msgspec.Struct]) -> list[str]:
    return [
        field.encode_name
        for field in msgspec.structs.fields(type_)
        if field.default is not msgspec.UNSET
    ]


def _subclasses(type_: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in type_.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
