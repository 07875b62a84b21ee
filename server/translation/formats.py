"""Output constraints, in all their spellings, to one grammar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from core.contract import grammar
from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar
from schemas.formats import (
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    StructuralTagFormat,
    StructuredOutputs,
    TextFormat,
)
from schemas.sampling import SamplingFields
from server.http.errors import conflicting, invalid, missing, unsupported


def output_format(request: SamplingFields) -> tuple[Grammar | None, str | None]:
    """The output constraint of the request, if any, and the name of its field.

    Raises InvalidRequest if there are several or one is invalid.
    """
    given = [
        (name, build, value)
        for name, build in _FIELDS.items()
        if _is_given(value := getattr(request, name)) and not isinstance(value, TextFormat)
    ]
    if not given:
        return None, None
    if len(given) > 1:
        names = ", ".join(name for name, _, _ in given)
        raise conflicting(given[1][0], f"At most one output constraint may be given, not {names}.")
    name, build, value = given[0]
    return build(value, name), name


def _response_format(value: ResponseFormat, name: str) -> Grammar:
    match value:
        case JsonObjectFormat(schema=schema):
            return grammar.json_object() if schema is None else _json(schema, name)
        case JsonSchemaFormat(json_schema=None, schema=None):
            raise missing("response_format.json_schema")
        case JsonSchemaFormat(json_schema=spec, schema=schema):
            schema = schema if spec is None else spec.schema
            is_strict = spec is not None and spec.strict is True
            if schema is None:
                return grammar.json_object()
            return grammar.json_schema(schema, is_strict=is_strict)
        case StructuralTagFormat(structures=structures, triggers=triggers):
            if not structures or not triggers:
                raise _unsupported(name, "a structural tag without structures and triggers")
            return grammar.structural_tags([_structure(s, name) for s in structures], triggers)
        case TextFormat():
            raise AssertionError("free text is not a constraint")


def _structured_outputs(value: StructuredOutputs, name: str) -> Grammar:
    if value.whitespace_pattern:
        raise _unsupported(f"{name}.whitespace_pattern", "a whitespace pattern")
    given = [kind for kind in _KINDS if _is_given(getattr(value, kind))]
    if len(given) != 1:
        raise conflicting(name, f"{name} must hold exactly one constraint, not {len(given)}.")
    [kind] = given
    options = {"is_compact": bool(value.disable_any_whitespace)} if kind in _JSON_KINDS else {}
    return _KINDS[kind](getattr(value, kind), f"{name}.{kind}", **options)


def _json(value: str | Mapping[str, Any] | None, name: str, *, is_compact: bool = False) -> Grammar:
    """JSON of a schema that nothing says to be strict, as in OpenAI's API."""
    return grammar.json_schema(_schema(value, name), is_strict=False, is_compact=is_compact)


def _schema(value: str | Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """A schema, decoded if it is given as text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise invalid(name, f"{name} is not valid JSON.") from None
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"{name} must be a JSON Schema, an object.", param=name, code="invalid_type"
        )
    return value


def _structural_tag(value: str | Mapping[str, Any], name: str) -> Grammar:
    try:
        tag = msgspec.convert(_schema(value, name), StructuralTagFormat)
    except msgspec.ValidationError:
        raise _unsupported(name, "this form of structural tag") from None
    return _response_format(tag, name)


def _structure(value: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any], str]:
    begin, schema, end = value.get("begin"), value.get("schema"), value.get("end")
    if not isinstance(begin, str) or not isinstance(schema, Mapping) or not isinstance(end, str):
        raise invalid(name, f"{name} structures need begin, schema and end.")
    return begin, schema, end


def _unsupported(name: str, what: str) -> InvalidRequest:
    return unsupported(name, f"'{name}': {what} is not supported by this server.")


def _is_given(value: object) -> bool:
    """An empty text is no constraint. An empty schema is one: any JSON."""
    if isinstance(value, StructuredOutputs):
        constraints = [getattr(value, kind) for kind in _KINDS]
        return "" not in constraints or any(map(_is_given, constraints))
    return value is not None and value is not False and value != ""


def _object(_value: bool, _name: str, *, is_compact: bool = False) -> Grammar:
    return grammar.json_object(is_compact=is_compact)


_JSON_KINDS = ("json", "json_object")

_KINDS: dict[str, Callable[..., Grammar]] = {
    "choice": lambda value, _name: grammar.choice(value),
    "grammar": lambda value, _name: grammar.lark(value),
    "json": _json,
    "json_object": _object,
    "regex": lambda value, _name: grammar.regex(value),
    "structural_tag": _structural_tag,
}

_FIELDS: dict[str, Callable[[Any, str], Grammar]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _json,
    "guided_regex": _KINDS["regex"],
    "guided_choice": _KINDS["choice"],
    "guided_grammar": _KINDS["grammar"],
    "guided_json_object": _object,
    "structural_tag": _structural_tag,
    "regex": _KINDS["regex"],
    "ebnf": _KINDS["grammar"],
    "json_schema": _json,
    "grammar": _KINDS["grammar"],
}
