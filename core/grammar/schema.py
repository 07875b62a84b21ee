"""Prepares JSON Schemas for llguidance: enforces, drops or refuses each keyword.

llguidance ignores keywords that it does not know, so all of them are checked here.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from core.contract.errors import InvalidRequest

MAX_DEPTH = 64
"""Levels of nested schemas."""

MAX_REFERENCES = 1000
"""Distinct targets of references: each may lead to another one."""

MAX_PATTERN_PROPERTIES = 64
"""In a whole schema: llguidance compares the patterns of an object pairwise."""

MAX_MULTIPLE = 100_000
"""Largest ``multipleOf``, as an integer after its decimal places are moved away: llguidance makes
an automaton with as many states."""

_SCHEMA = frozenset({"items", "additionalProperties"})
_LIST_OF_SCHEMAS = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
_MAP_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_PLAIN = frozenset(
    {
        "$ref",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
    }
)
_ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "id",
        "markdownDescription",
        "name",
        "readOnly",
        "strict",
        "title",
        "writeOnly",
        "xml",
    }
)
_NO_CONSTRAINT: dict[str, tuple[object, ...]] = {
    "dependentRequired": ({},),
    "minContains": (0,),
    "nullable": (False,),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}
"""Keywords that cannot be enforced, and their values that constrain nothing."""

_FORMATS = frozenset(
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
_FREE_FORMATS = frozenset({"password"})
_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")


def prepare_schema(schema: Any, *, is_strict: bool, is_closed: bool) -> Any:
    """Return the schema with only the keywords that llguidance enforces.

    Raises InvalidRequest naming a keyword that cannot be enforced; without ``is_strict`` it is
    dropped. ``is_closed`` adds ``additionalProperties: false`` to objects that list their
    properties and leave others open. Schemas that describe one object in several parts stay open,
    because closing one part would forbid properties of another.
    """
    return _Preparation(
        schema, is_strict=is_strict, is_closed=is_closed and not _combines(schema)
    ).schema(schema, 0)


def ignored_keywords(schema: Any) -> list[str]:
    """Keywords that are dropped from a schema without ``is_strict``; none if it is invalid."""
    preparation = _Preparation(schema, is_strict=False, is_closed=False)
    try:
        preparation.schema(schema, 0)
    except InvalidRequest:
        return []
    return list(preparation.dropped)


class _Preparation:
    """``dropped`` are the keywords that were dropped, in order."""

    def __init__(self, root: Any, *, is_strict: bool, is_closed: bool) -> None:
        self._root = root
        self._is_strict = is_strict
        self._is_closed = is_closed
        self._references: set[str] = set()
        self._num_patterns = 0
        self.dropped: dict[str, None] = {}

    def schema(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise _invalid("a schema must be an object or a boolean")
        if depth > MAX_DEPTH:
            raise _invalid(f"schemas are nested more than {MAX_DEPTH} deep")
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            self._add(result, keyword, value, schema, depth)
        if (
            self._is_closed
            and isinstance(result.get("properties"), dict)
            and not result.keys() & {"additionalProperties", "patternProperties", *_COMBINING}
            and not result.get("minProperties", 0)
        ):
            result["additionalProperties"] = False
        return result

    def _add(  # noqa: C901, PLR0912 - one case per kind of keyword
        self, result: dict[str, Any], keyword: str, value: Any, schema: dict[str, Any], depth: int
    ) -> None:
        """Add one keyword to the prepared schema."""
        match keyword:
            case "items" if isinstance(value, list):  # prefixItems since draft 2020-12
                result["prefixItems"] = self._list(keyword, value, depth)
                result["items"] = self.schema(schema.get("additionalItems", True), depth + 1)
            case "additionalItems":
                pass  # no effect without a list of items
            case "oneOf":
                self._add_one_of(result, self._list(keyword, value, depth), schema)
            case "$ref":
                self._add_reference(result, value)
            case "format":
                self._add_format(result, value, schema)
            case _ if keyword in _SCHEMA:
                result[keyword] = self.schema(value, depth + 1)
            case _ if keyword in _LIST_OF_SCHEMAS:
                result[keyword] = self._list(keyword, value, depth)
            case _ if keyword in _MAP_OF_SCHEMAS:
                if not isinstance(value, dict):
                    raise _invalid(f"'{keyword}' must be an object")
                self._num_patterns += len(value) if keyword == "patternProperties" else 0
                if self._num_patterns > MAX_PATTERN_PROPERTIES:
                    raise _invalid(f"it has more than {MAX_PATTERN_PROPERTIES} patternProperties")
                result[keyword] = {name: self.schema(v, depth + 1) for name, v in value.items()}
            case "type" | "required":
                names = [value] if keyword == "type" and isinstance(value, str) else value
                if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                    raise _invalid(f"'{keyword}' must be a list of strings")
                result[keyword] = value
            case "multipleOf":
                _check_multiple(value)
                result[keyword] = value
            case _ if keyword in _PLAIN:
                result[keyword] = value
            case "$id" | "id" if depth > 0 and isinstance(value, str) and self._is_strict:
                raise _unsupported(keyword)
            case _ if keyword in _ANNOTATIONS or (
                keyword.startswith("x-") and keyword != "x-guidance"
            ):
                pass
            case _ if value not in _NO_CONSTRAINT.get(keyword, ()):
                self._drop(keyword)

    def _drop(self, keyword: str, value: str | None = None) -> None:
        """Leave out a keyword that cannot be enforced."""
        if self._is_strict:
            raise _unsupported(keyword, value)
        self.dropped[keyword] = None

    def _add_one_of(
        self, result: dict[str, Any], options: list[Any], schema: dict[str, Any]
    ) -> None:
        """Add it as ``anyOf``, which is enforced, if that means the same or may mean more."""
        is_disjoint = self._are_disjoint(options)
        if "anyOf" in schema or (self._is_strict and not is_disjoint):
            result["oneOf"] = options
            return
        result["anyOf"] = options
        if not is_disjoint:
            self._drop("oneOf")

    def _list(self, keyword: str, value: Any, depth: int) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise _invalid(f"'{keyword}' must be a list of schemas")
        return [self.schema(item, depth + 1) for item in value]

    def _add_reference(self, result: dict[str, Any], value: Any) -> None:
        if not isinstance(value, str):
            raise _invalid("'$ref' must be a string")
        if value == "#" or value.startswith("#/"):
            result["$ref"] = value
            self._references.add(value)
            if len(self._references) > MAX_REFERENCES:
                raise _invalid(f"it has more than {MAX_REFERENCES} different references")
        elif self._is_strict:
            raise _invalid(f"'$ref' must begin with '#/', not '{value[:80]}'")
        else:
            self._drop("$ref")

    def _add_format(self, result: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
        if not isinstance(value, str):
            raise _invalid("'format' must be a string")
        if value in _FREE_FORMATS or schema.get("type") in ("integer", "number"):
            return
        if value in _FORMATS:
            result["format"] = value
        else:
            self._drop("format", value)

    def _are_disjoint(self, options: list[Any]) -> bool:
        """Whether no value can satisfy two options, so that oneOf equals anyOf."""
        resolved = [self._resolved(option) for option in options]
        found = [option for option in resolved if option is not None]
        if len(found) < len(resolved):
            return False
        types = [_types(option) for option in found]
        if all(types) and len(set().union(*types)) == sum(map(len, types)):
            return True
        names: set[str] = set.intersection(*(set(option.get("required", ())) for option in found))
        return any(_discriminates(name, found) for name in names)

    def _resolved(self, option: Any) -> dict[str, Any] | None:
        for _ in range(MAX_DEPTH):
            if not isinstance(option, dict):
                return None
            if "$ref" not in option:
                return option
            option = _lookup(self._root, option["$ref"])
        return None


def _check_multiple(value: Any) -> None:
    """Refuse a step that llguidance cannot count, or only with a huge automaton."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _invalid("'multipleOf' must be a number above 0")
    step = Decimal(repr(value)).normalize()
    num_places = max(0, -int(step.as_tuple().exponent))
    if step.scaleb(num_places) > MAX_MULTIPLE:
        raise _invalid(
            f"'multipleOf' may be at most {MAX_MULTIPLE}, without its decimal point; it is "
            f"{str(value)[:30]}"
        )


def _types(option: dict[str, Any]) -> set[str]:
    types = option.get("type", [])
    kinds = {types} if isinstance(types, str) else set(types)
    return {"number" if kind == "integer" else kind for kind in kinds}


def _discriminates(name: str, options: list[dict[str, Any]]) -> bool:
    """Whether the strings that each option allows for this property are disjoint."""
    seen: set[str] = set()
    for option in options:
        own = option.get("properties", {}).get(name)
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


def _lookup(root: Any, reference: str) -> Any:
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
            if is_described and not node.keys().isdisjoint(_COMBINING):
                return True
            stack += node.values()
    return False


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid schema: {message}.", code="invalid_schema")


def _unsupported(keyword: str, value: str | None = None) -> InvalidRequest:
    what = f"'{keyword}'" if value is None else f"'{keyword}': '{str(value)[:80]}'"
    return InvalidRequest(
        f"Invalid schema: {what} is not supported by this server.", code="invalid_schema"
    )
