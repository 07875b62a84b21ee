"""Fitting: makes the schemas of a grammar such that it compiles, and notes what they lose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from core.contract.errors import InvalidRequest
from core.contract.grammar import DroppedKeyword, Json, JsonCall, KeywordArguments, XmlArguments
from core.grammar.matcher.keywords import COMBINING, DEFINITIONS, moved, references
from core.grammar.matcher.patterns import RAW_FORMATS
from core.grammar.matcher.repair import Tries, repair
from core.grammar.matcher.schema import invalid_schema, lookup, prepare_schema

OfSchema: TypeAlias = Json | JsonCall | XmlArguments | KeywordArguments

_OF_WHOLE_OBJECTS = (
    *COMBINING,
    *("const", "enum", "maxProperties", "minProperties", "patternProperties"),
)
"""Keywords of arguments that need the whole object."""

_LIMITS = frozenset({"format", "maxLength", "minLength", "pattern"})

_IN_THIS_FORM = "it cannot be enforced in this model's form of calls"


class Fitting:
    """``dropped`` are the keywords that were left out, in order.

    A strict schema loses nothing: InvalidRequest names the tool and the keyword.
    """

    def __init__(
        self, problem: Callable[[str], str | None], *, is_repaired: bool, is_widened: bool
    ) -> None:
        """See ``to_lark``."""
        self.dropped: dict[DroppedKeyword, None] = {}
        self._problem = problem
        self._is_repaired = is_repaired
        self._is_widened = is_widened
        self._tries = Tries()
        self._known: dict[tuple[str, str], Any] = {}  # schemas by tool and text: calls repeat

    def value(self, grammar: Json, text: Callable[[Any], str]) -> Any:
        """Return the schema of a JSON value. ``text`` makes a grammar of a schema alone."""
        schema = self._prepared(grammar, is_closed=grammar.is_closed)
        return self.repaired(schema, grammar, text)

    def arguments(self, grammar: Json | JsonCall, text: Callable[[Any], str]) -> dict[str, Any]:
        """Return the schema of a tool's arguments, which are always an object."""
        prepared = {"type": "object", **self._object(grammar)}
        fitted: dict[str, Any] = self.repaired(prepared, grammar, text, keeps_type=True)
        return fitted

    def properties(
        self, grammar: XmlArguments | KeywordArguments
    ) -> Iterator[tuple[str, Any, bool]]:
        """Return name, prepared schema and "is required" of each argument, in order.

        A schema has what it refers to.
        """
        schema = _with_target(self._object(grammar))
        for keyword in _OF_WHOLE_OBJECTS:
            if keyword in schema:
                self._drop(grammar, keyword, _IN_THIS_FORM)
        in_its_place = _completed(schema)
        required = schema.get("required", [])
        for name, own in schema.get("properties", {}).items():
            if own is False:
                if name in required:
                    self._drop(grammar, "required", f"nothing satisfies '{name}'")
                continue
            yield name, in_its_place(own), name in required

    def raw_string(
        self,
        schema: Any,
        grammar: XmlArguments,
        text: Callable[[Any], str],
        json_text: Callable[[Any], str],
    ) -> Any:
        """Return the schema of a string without quotes; ``json_text`` writes one with quotes."""
        if schema.get("format", "ipv4") not in RAW_FORMATS:
            self._drop(grammar, "format", _IN_THIS_FORM)
        for keyword in filter(schema.__contains__, COMBINING):
            self._drop(grammar, keyword, _IN_THIS_FORM)
        schema = {key: value for key, value in schema.items() if key not in COMBINING}
        if _LIMITS & schema.keys():  # only of JSON llguidance says if nothing satisfies it
            schema = self._repaired(schema, grammar, json_text)
        return self.repaired(schema, grammar, text)

    def repaired(
        self,
        schema: Any,
        grammar: OfSchema,
        text: Callable[[Any], str],
        *,
        keeps_type: bool = False,
    ) -> Any:
        """Return a prepared schema without what keeps it from being compiled, if that is known."""
        if not self._is_repaired:
            return schema
        return self._repaired(schema, grammar, text, keeps_type=keeps_type)

    def _repaired(
        self,
        schema: Any,
        grammar: OfSchema,
        text: Callable[[Any], str],
        *,
        keeps_type: bool = False,
    ) -> Any:
        def problem(schema: Any) -> str | None:
            try:
                return self._problem(text(schema))
            except InvalidRequest as error:
                return error.message

        key = grammar.tool, text(schema)
        if key in self._known:
            return self._known[key]
        with _naming(grammar.tool):
            schema, losses = repair(schema, self._tries.counted(problem), keeps_type=keeps_type)
            if losses and grammar.is_strict:
                raise losses[0].error()
        for loss in losses:
            self._note(grammar, loss.keywords)
        self._known[key] = schema
        return schema

    def _object(self, grammar: OfSchema) -> dict[str, Any]:
        """Return the prepared schema of a tool's arguments without its type."""
        schema = self._prepared(grammar)
        schema = dict(schema) if isinstance(schema, dict) else {}
        kind = schema.pop("type", "object")
        if kind != "object" and "object" not in kind:
            self._drop(grammar, "type", "the arguments of a tool are an object")
        if self._is_widened and not grammar.is_strict:
            self._note(grammar, ("parameters",))
            return _widened(schema)
        return schema

    def _prepared(self, grammar: OfSchema, *, is_closed: bool = True) -> Any:
        with _naming(grammar.tool):
            schema, dropped = prepare_schema(
                json.loads(grammar.schema), is_strict=grammar.is_strict, is_closed=is_closed
            )
        self._note(grammar, dropped)
        return schema

    def _drop(self, grammar: OfSchema, keyword: str, problem: str) -> None:
        if grammar.is_strict:
            with _naming(grammar.tool):
                raise invalid_schema(f"'{keyword}': {problem}")
        self._note(grammar, (keyword,))

    def _note(self, grammar: OfSchema, keywords: tuple[str, ...]) -> None:
        self.dropped |= {(grammar.tool, keyword): None for keyword in keywords}


@contextmanager
def _naming(tool: str) -> Iterator[None]:
    """Name the tool in errors of its schema."""
    try:
        yield
    except InvalidRequest as error:
        if not tool:
            raise
        named = f"Invalid schema of tool '{tool[:64]}':"
        message = error.message.replace("Invalid schema:", named, 1)
        raise InvalidRequest(message, code=error.code) from error


def _with_target(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object, with the object that it refers to in place of its reference."""
    while "$ref" in schema:
        target = lookup(schema, schema["$ref"])
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(target, dict) or target.get("type") != "object":
            break
        if (target.keys() & rest.keys()) - DEFINITIONS:
            break
        schema = {**target, **rest}
        del schema["type"]
    return schema


def _completed(whole: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a function that adds to a schema in ``whole`` what it refers to."""
    definitions = {key: whole[key] for key in DEFINITIONS if key in whole}
    targets = tuple(f"#/{key}/" for key in DEFINITIONS)
    if all(reference.startswith(targets) for reference in references(whole)):
        place, shared = "", definitions
    else:
        place = "/$defs/arguments"
        shared = {"$defs": {"arguments": moved({"type": "object", **whole}, place)}}

    def completed(schema: Any) -> Any:
        if next(references(schema), None) is None:
            return schema
        return {**moved(schema, place), **shared}

    return completed


def _widened(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows any object, and says which properties there are."""
    properties = {
        name: {"type": "string"} if isinstance(own, dict) and own.get("type") == "string" else {}
        for name, own in schema.get("properties", {}).items()
    }
    return {"properties": properties, "additionalProperties": True}
