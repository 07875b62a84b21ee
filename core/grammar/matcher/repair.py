"""Repair: finds the keywords of a schema that llguidance refuses, and leaves out only these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from core.contract.errors import InvalidRequest
from core.grammar.matcher.keywords import DEFINITIONS, Place, children, with_children
from core.grammar.matcher.schema import invalid_schema

MAX_TRIES = 4000
"""Schemas that are compiled to find what is wrong with one grammar. The time of all is limited
with that of the grammar (``core.grammar.trial``)."""

_HIDDEN = "$comment"
"""The keyword that has a reference while it is hidden. Prepared schemas have no annotations."""

_ALWAYS_KEPT = DEFINITIONS | {_HIDDEN}

_REASONS = {
    "look-around": "look-around is not supported",
    "lookarounds": "look-around, which '\\b' is too, is not supported",
    "backreferences": "back-references are not supported",
    "regex parse error": "it is not a regular expression that this server reads",
    "oneOf": "its options do not exclude each other; use anyOf",
    "nsatisfiable": "nothing satisfies it",
    "cannot be satisfied": "nothing satisfies it, or it is too complex",
}
"""By a part of llguidance's message."""

_NO_TARGET = re.compile("Pointer '(.{0,80}?)' does not exist")

Problem = Callable[[Any], str | None]
"""Compiles a schema; returns why that fails, or None."""


class Dropped(NamedTuple):
    """Keywords that were left out together, the path of their schema, and llguidance's words."""

    keywords: tuple[str, ...]
    path: tuple[str, ...]
    problem: str

    def error(self) -> InvalidRequest:
        """The error of a strict schema."""
        names = " and ".join(f"'{keyword}'" for keyword in self.keywords)
        if len(self.keywords) > 1:
            return invalid_schema(f"nothing satisfies {names} together", self.path)
        return invalid_schema(f"{names} cannot be enforced{_reason(self.problem)}", self.path)


class _Unit(NamedTuple):
    """A part left out at once: a keyword, or an entry of ``allOf`` or ``patternProperties``.

    So is each property that is forbidden (``false``), apart from the schemas of the others.
    """

    keyword: str
    entry: str | int | None = None


_TYPE = _Unit("type")


class Tries:
    """Counts what is compiled for one grammar."""

    def __init__(self) -> None:
        self._num_left = MAX_TRIES

    def counted(self, problem: Problem) -> Problem:
        def counting(schema: Any) -> str | None:
            self._num_left -= 1
            if self._num_left < 0:
                raise InvalidRequest(
                    "Invalid schema: it has too many keywords that cannot be enforced.",
                    code="invalid_schema",
                )
            return problem(schema)

        return counting


def repair(schema: Any, problem: Problem, *, keeps_type: bool = False) -> tuple[Any, list[Dropped]]:
    """Leave out what keeps a prepared schema from being compiled.

    The schemas in it are tried alone and without their references, so that an error is found where
    it is; then each reference that fails is left out. With ``keeps_type`` the type of the whole is
    not. Raises what ``problem`` raises.
    """
    if not isinstance(schema, dict) or problem(schema) is None:
        return schema, []
    search = _Search(problem, keeps_type=keeps_type)
    local = search.mended(_hiding_references(schema), ())
    return search.with_good_references(local), search.dropped


class _Search:
    def __init__(self, problem: Problem, *, keeps_type: bool) -> None:
        self._problem = problem
        self._keeps_type = keeps_type
        self.dropped: list[Dropped] = []

    def mended(self, schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        """Mend a schema without references: first those in it, then its own keywords."""
        inner = [(place, item) for place, item in children(schema) if isinstance(item, dict)]
        for place, item in self._failing(inner):
            below = (*path, *(str(part) for part in place if part is not None))
            schema = _with(schema, place, self.mended(item, below))
        if self._problem(schema) is None:
            return schema
        return self._with_good_keywords(schema, path)

    def _failing(self, places: list[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
        """Yield the places that fail alone. Halves are tried together."""
        if not places:
            return
        tuple_of_all = {
            "type": "array",
            "prefixItems": [item for _, item in places],
            "items": False,
            "minItems": len(places),
        }
        if self._problem(tuple_of_all) is None:
            return
        if len(places) == 1:
            yield places[0]
            return
        middle = len(places) // 2
        yield from self._failing(places[:middle])
        yield from self._failing(places[middle:])

    def _with_good_keywords(self, schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        """Take the keywords one by one. Leave out one that fails, and the one it contradicts."""
        is_fixed = self._keeps_type and not path
        units = sorted(_units(schema), key=lambda unit: unit != _TYPE)
        kept = [_TYPE] if is_fixed else []
        for unit in units[len(kept) :]:
            problem = self._problem(_only(schema, [*kept, unit]))
            if problem is None:
                kept.append(unit)
                continue
            other = self._contradicted(schema, unit, kept, is_fixed=is_fixed)
            if other is not None:
                kept.remove(other)
            names = [unit.keyword] if other is None else [other.keyword, unit.keyword]
            self.dropped.append(Dropped(tuple(dict.fromkeys(names)), path, problem))
        return _only(schema, kept)

    def _contradicted(
        self, schema: dict[str, Any], unit: _Unit, kept: Sequence[_Unit], *, is_fixed: bool
    ) -> _Unit | None:
        """The one keyword that ``unit`` fails with, if it does not fail without."""
        kind = [_TYPE] if _TYPE in kept else []
        if self._problem(_only(schema, [*kind, unit])) is not None:
            is_alone = is_fixed or not kind or self._problem(_only(schema, [unit])) is not None
            return None if is_alone else _TYPE
        for other in kept:
            if other not in kind and self._problem(_only(schema, [*kind, other, unit])) is not None:
                return other
        return None

    def with_good_references(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Show the hidden references but those that fail. Without any, the schema compiles."""
        num = len(list(_hidden(schema)))
        bad: set[int] = set()
        good = 0  # with the first ``good`` of the others it compiles
        while (problem := self._problem(_shown(schema, num, bad))) is not None:
            if len(bad) == num:
                raise invalid_schema("it is too complex")
            high = num
            while high - good > 1:
                middle = (good + high) // 2
                if self._problem(_shown(schema, middle, bad)) is None:
                    good = middle
                else:
                    high = middle
            bad.add(good)
            self.dropped.append(Dropped(("$ref",), (), problem))
            good += 1
        return _shown(schema, num, bad)


def _units(schema: dict[str, Any]) -> Iterator[_Unit]:
    for keyword, value in schema.items():
        if keyword == "allOf":
            yield from (_Unit(keyword, index) for index in range(len(value)))
        elif keyword == "patternProperties":
            yield from (_Unit(keyword, pattern) for pattern in value)
        elif keyword == "properties":
            yield _Unit(keyword)
            yield from (_Unit(keyword, name) for name, item in value.items() if item is False)
        elif keyword not in _ALWAYS_KEPT:
            yield _Unit(keyword)


def _only(schema: dict[str, Any], units: Sequence[_Unit]) -> dict[str, Any]:
    """The schema with these keywords, in its order.

    What ``patternProperties`` allow stays so, and which properties there are: an object that is
    closed would be empty without them.
    """
    wanted = set(units)
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "allOf":
            parts = [item for i, item in enumerate(value) if _Unit(keyword, i) in wanted]
            if parts:
                result[keyword] = parts
        elif keyword == "patternProperties":
            result[keyword] = {k: v for k, v in value.items() if _Unit(keyword, k) in wanted}
        elif keyword == "properties":
            result[keyword] = {
                k: _Unit(keyword, k if v is False else None) not in wanted or v
                for k, v in value.items()
            }
        elif keyword in _ALWAYS_KEPT or _Unit(keyword) in wanted:
            result[keyword] = value
    return result


def _with(schema: dict[str, Any], place: Place, item: Any) -> dict[str, Any]:
    """The schema with another one at a place."""
    keyword, key = place
    if key is None:
        return {**schema, keyword: item}
    value = schema[keyword].copy()
    value[key] = item
    return {**schema, keyword: value}


def _hiding_references(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        _HIDDEN if keyword == "$ref" else keyword: value
        for keyword, value in with_children(schema, _hiding_references).items()
    }


def _hidden(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if _HIDDEN in schema:
            yield schema[_HIDDEN]
        for _, item in children(schema):
            yield from _hidden(item)


def _shown(schema: dict[str, Any], num: int, bad: set[int]) -> dict[str, Any]:
    """The schema with the first ``num`` hidden references but the bad ones, and none hidden."""
    counter = count()

    def shown(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        number = next(counter) if _HIDDEN in node else -1
        result = with_children(node, shown)
        target = result.pop(_HIDDEN, None)
        if target is not None and number < num and number not in bad:
            result["$ref"] = target
        return result

    result: dict[str, Any] = shown(schema)
    return result


def _reason(problem: str) -> str:
    """Return llguidance's reason about a regex, in parentheses; other reasons are internal."""
    target = _NO_TARGET.search(problem)
    if target is not None:
        return f": '#{target[1]}' does not exist"
    for sign, words in _REASONS.items():
        if sign in problem:
            return f": {words}"
    return ""
