"""Prepares JSON Schemas for llguidance: enforces, drops or refuses each keyword.

llguidance ignores keywords that it does not know, so all of them are checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from core.contract.errors import InvalidRequest
from core.grammar.matcher.keywords import (
    COMBINING,
    FORMATS,
    FREE_FORMATS,
    LIST_OF_SCHEMAS,
    MAP_OF_SCHEMAS,
    NO_CONSTRAINT,
    NOT_ENFORCED,
    PAIRS,
    SCHEMA,
    is_of_type,
)
from core.grammar.matcher.values import CHECKS, Unreadable

MAX_DEPTH = 64
"""Levels of nested schemas."""

MAX_REFERENCES = 1000
"""Distinct targets of references: each may lead to another one."""

MAX_PATTERN_PROPERTIES = 64
"""In a whole schema: llguidance compares the patterns of an object pairwise."""


class Prepared(NamedTuple):
    """A schema with only the keywords that are enforced, and the names of those dropped."""

    schema: Any
    dropped: tuple[str, ...]


def prepare_schema(schema: Any, *, is_strict: bool, is_closed: bool) -> Prepared:
    """Leave only the keywords that llguidance enforces. A keyword that is null counts as absent.

    Raises InvalidRequest naming a keyword that cannot be enforced or read; without ``is_strict`` it
    is dropped. ``is_closed`` adds ``additionalProperties: false`` to objects that list their
    properties and leave others open. Schemas that describe one object in several parts stay open,
    because closing one part would forbid properties of another.
    """
    preparation = _Preparation(
        schema, is_strict=is_strict, is_closed=is_closed and not _combines(schema)
    )
    try:
        prepared = preparation.schema(schema, 0)
    except Unreadable as error:
        raise _invalid(str(error)) from None
    return Prepared(prepared, tuple(preparation.dropped))


def invalid_schema(message: str, place: Sequence[str] = ()) -> InvalidRequest:
    """The error of a schema, at ``place`` of properties and other keys."""
    where = f" (at '{'.'.join(place)[:80]}')" if place else ""
    return _invalid(message + where)


class _Preparation:
    """``dropped`` are the keywords that were dropped, in order."""

    def __init__(self, root: Any, *, is_strict: bool, is_closed: bool) -> None:
        self._root = root
        self._is_strict = is_strict
        self._is_closed = is_closed
        self._references: set[str] = set()
        self._ended: set[str] = set()  # references that do not lead back to themselves
        self._num_patterns = 0
        self._place: list[str] = []
        self.dropped: dict[str, None] = {}

    def schema(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Unreadable("a schema must be an object or a boolean")
        if depth > MAX_DEPTH:
            raise _invalid(f"schemas are nested more than {MAX_DEPTH} deep")
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            if value is None and keyword != "const":
                continue
            try:
                self._add(result, keyword, value, schema, depth)
            except Unreadable as error:
                self._drop(keyword, str(error))
        if not self._is_strict:
            if "oneOf" in result:  # there is an anyOf too
                both = {"anyOf": result.pop("oneOf")}
                result["allOf"] = [*result.get("allOf", ()), both]
            self._drop_contradictions(result)
        if (
            self._is_closed
            and isinstance(result.get("properties"), dict)
            and "additionalProperties" not in result
            and all(schema.get(keyword) is None for keyword in ("patternProperties", *COMBINING))
            and result.get("minProperties", 0) <= len(result["properties"])
        ):
            result["additionalProperties"] = False
        return result

    def _add(  # noqa: C901 - one case per kind of keyword
        self, result: dict[str, Any], keyword: str, value: Any, schema: dict[str, Any], depth: int
    ) -> None:
        """Add one keyword to the prepared schema. Raises Unreadable."""
        match keyword:
            case "items" if isinstance(value, list):  # prefixItems since draft 2020-12
                result["prefixItems"] = self._list(keyword, value, depth)
                rest = schema.get("additionalItems")
                result["items"] = self._inner(keyword, True if rest is None else rest, depth)
            case "additionalItems":
                pass  # no effect without a list of items
            case "oneOf":
                self._add_one_of(result, self._list(keyword, value, depth), schema)
            case "$ref":
                self._add_reference(result, value)
            case "format":
                self._add_format(result, value, schema)
            case _ if keyword in SCHEMA:
                result[keyword] = self._inner(keyword, value, depth)
            case _ if keyword in LIST_OF_SCHEMAS:
                result[keyword] = self._list(keyword, value, depth)
            case _ if keyword in MAP_OF_SCHEMAS:
                result[keyword] = self._map(keyword, value, depth)
            case _ if keyword in CHECKS:
                result[keyword] = CHECKS[keyword](keyword, value)
            case "$id" | "id" if depth > 0 and isinstance(value, str) and self._is_strict:
                raise self._unsupported(keyword)
            case _ if keyword in NOT_ENFORCED and value not in NO_CONSTRAINT.get(keyword, ()):
                self._drop(keyword)

    def _drop(self, keyword: str, problem: str | None = None) -> None:
        """Leave out a keyword that cannot be enforced or read."""
        if self._is_strict:
            if problem is None:
                raise self._unsupported(keyword)
            raise invalid_schema(problem, self._place)
        self.dropped[keyword] = None

    def _unsupported(self, keyword: str, value: str | None = None) -> InvalidRequest:
        what = f"'{keyword}'" if value is None else f"'{keyword}': '{str(value)[:80]}'"
        return invalid_schema(f"{what} is not supported by this server", self._place)

    def _drop_contradictions(self, result: dict[str, Any]) -> None:
        for low, high in PAIRS:
            if low in result and high in result and result[low] > result[high]:
                self._drop_both(result, low, high)
        limit = "enum" if "enum" in result else "const"
        if "type" in result and limit in result:
            kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
            values = result[limit] if limit == "enum" else [result[limit]]
            if not any(is_of_type(value, kind) for value in values for kind in kinds):
                self._drop_both(result, "type", limit)

    def _drop_both(self, result: dict[str, Any], *keywords: str) -> None:
        for keyword in keywords:
            del result[keyword]
            self._drop(keyword)

    def _add_one_of(
        self, result: dict[str, Any], options: list[Any], schema: dict[str, Any]
    ) -> None:
        """Add it as ``anyOf``, which is enforced, if that means the same or may mean more."""
        is_disjoint = self._are_disjoint(options)
        if self._is_strict and ("anyOf" in schema or not is_disjoint):
            result["oneOf"] = options  # llguidance knows more cases in which they are disjoint
            return
        result["oneOf" if "anyOf" in schema else "anyOf"] = options
        if not is_disjoint:
            self._drop("oneOf")

    def _inner(self, key: str, value: Any, depth: int) -> Any:
        """Prepare a schema below ``key``."""
        if not isinstance(value, dict | bool):
            raise Unreadable(f"'{key}' must be a schema")
        self._place.append(key)
        try:
            return self.schema(value, depth + 1)
        finally:
            self._place.pop()

    def _list(self, keyword: str, value: Any, depth: int) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise Unreadable(f"'{keyword}' must be a list of schemas")
        if not all(isinstance(item, dict | bool) for item in value):
            raise Unreadable(f"'{keyword}' must be a list of schemas")
        return [self._inner(f"{keyword}.{i}", item, depth) for i, item in enumerate(value)]

    def _map(self, keyword: str, value: Any, depth: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unreadable(f"'{keyword}' must be an object")
        if keyword == "patternProperties":
            self._num_patterns += len(value)
            if self._num_patterns > MAX_PATTERN_PROPERTIES:
                raise Unreadable(f"it has more than {MAX_PATTERN_PROPERTIES} patternProperties")
        result: dict[str, Any] = {}
        for name, item in value.items():
            if isinstance(item, dict | bool):
                result[name] = self._inner(f"{keyword}.{name}", item, depth)
                continue
            self._drop(f"{keyword}.{name}", f"'{keyword}.{name}' must be a schema")
            if not (name == "required" and isinstance(item, list)):  # which stands too deep
                result[name] = True
        return result

    def _add_reference(self, result: dict[str, Any], value: Any) -> None:
        if not isinstance(value, str):
            raise Unreadable("'$ref' must be a string")
        if value != "#" and not value.startswith("#/"):
            raise Unreadable(f"'$ref' must begin with '#/', not '{value[:80]}'")
        if self._leads_back(value):
            raise Unreadable(f"'$ref' leads back to itself: '{value[:80]}'")
        result["$ref"] = value
        self._references.add(value)
        if len(self._references) > MAX_REFERENCES:
            raise _invalid(f"it has more than {MAX_REFERENCES} different references")

    def _leads_back(self, reference: str) -> bool:
        """Whether a chain of references has no end."""
        seen = set()
        while reference not in self._ended:
            if reference in seen:
                return True
            seen.add(reference)
            target = lookup(self._root, reference)
            if not isinstance(target, dict) or not isinstance(target.get("$ref"), str):
                break
            reference = target["$ref"]
        self._ended |= seen
        return False

    def _add_format(self, result: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
        if not isinstance(value, str):
            raise Unreadable("'format' must be a string")
        if value in FREE_FORMATS or schema.get("type") in ("integer", "number"):
            return
        if value in FORMATS:
            result["format"] = value
        elif self._is_strict:
            raise self._unsupported("format", value)
        else:
            self._drop("format")

    def _are_disjoint(self, options: list[Any]) -> bool:
        """Whether no value can satisfy two options, so that oneOf equals anyOf."""
        resolved = [self._resolved(option) for option in options]
        found = [option for option in resolved if option is not None]
        if len(found) < len(resolved):
            return False
        types = [_types(option) for option in found]
        if all(types) and len(set().union(*types)) == sum(map(len, types)):
            return True
        names: set[str] = set.intersection(*map(_required, found))
        return any(_discriminates(name, found) for name in names)

    def _resolved(self, option: Any) -> dict[str, Any] | None:
        for _ in range(MAX_DEPTH):
            if not isinstance(option, dict):
                return None
            if not isinstance(option.get("$ref"), str):
                return option
            option = lookup(self._root, option["$ref"])
        return None


def _types(option: dict[str, Any]) -> set[str]:
    types = option.get("type")
    kinds = types if isinstance(types, list) else [types]
    return {"number" if k == "integer" else k for k in kinds if isinstance(k, str)}


def _required(option: dict[str, Any]) -> set[str]:
    names = option.get("required")
    return {n for n in names if isinstance(n, str)} if isinstance(names, list) else set()


def _discriminates(name: str, options: list[dict[str, Any]]) -> bool:
    """Whether the strings that each option allows for this property are disjoint."""
    seen: set[str] = set()
    for option in options:
        properties = option.get("properties")
        own = properties.get(name) if isinstance(properties, dict) else None
        if not isinstance(own, dict):
            return False
        values = own.get("enum", [own["const"]] if "const" in own else [])
        if (
            not isinstance(values, list)
            or not values
            or not all(isinstance(value, str) for value in values)
        ):
            return False
        if seen.intersection(values):
            return False
        seen.update(values)
    return True


def lookup(root: Any, reference: str) -> Any:
    """Return the target of a reference into the same schema, None without one."""
    node = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    return node


def _combines(schema: Any) -> bool:
    """Whether several schemas may describe one object."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            is_described = not node.keys().isdisjoint({"properties", "patternProperties"})
            parts = node.get("allOf")
            if isinstance(parts, list) and len(parts) > 1:
                return True
            if is_described and not node.keys().isdisjoint(COMBINING):
                return True
            stack += node.values()
    return False


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid schema: {message}.", code="invalid_schema")
