"""The values of plain keywords of JSON Schema: which can be read, and in what form."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from core.grammar.matcher.keywords import COUNTS, NUMBERS, TYPES, is_number, is_of_type
from core.grammar.matcher.patterns import EQUAL_PATTERNS

MAX_MULTIPLE = 100_000
"""Largest ``multipleOf``, as an integer after its decimal places are moved away: llguidance makes
an automaton with as many states."""


class Unreadable(Exception):
    """The value of a keyword is not one that JSON Schema knows, or that can be enforced."""


def _type(_keyword: str, value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise Unreadable("'type' must be a list of strings")
    unknown = [name for name in names if name not in TYPES]
    if unknown or not names:
        found = f", not '{unknown[0][:40]}'" if unknown else ""
        raise Unreadable(f"'type' must be one of {', '.join(sorted(TYPES))}{found}")
    return value


def _names(keyword: str, value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Unreadable(f"'{keyword}' must be a list of strings")
    return value


def _values(keyword: str, value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise Unreadable(f"'{keyword}' must be a list of values")
    return value


def _pattern(keyword: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise Unreadable(f"'{keyword}' must be a string")
    return EQUAL_PATTERNS.get(value, value)


def _count(keyword: str, value: Any) -> int:
    if not is_of_type(value, "integer") or value < 0:
        raise Unreadable(f"'{keyword}' must be a whole number of at least 0")
    return int(value)


def _number(keyword: str, value: Any) -> Any:
    is_flag = isinstance(value, bool) and keyword.startswith("exclusive")  # until draft 4
    if not is_number(value) and not is_flag:
        raise Unreadable(f"'{keyword}' must be a number")
    return value


def _step(keyword: str, value: Any) -> Any:
    """Check a step that llguidance may not count, or only with a huge automaton."""
    if not is_number(value) or not 0 < value < math.inf:
        raise Unreadable(f"'{keyword}' must be a number above 0")
    step = Decimal(repr(value)).normalize()
    num_places = max(0, -int(step.as_tuple().exponent))
    if step.scaleb(num_places) > MAX_MULTIPLE:
        raise Unreadable(
            f"'{keyword}' may be at most {MAX_MULTIPLE}, without its decimal point; it is "
            f"{str(value)[:30]}"
        )
    return value


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "const": lambda _keyword, value: value,
    "enum": _values,
    "multipleOf": _step,
    "pattern": _pattern,
    "required": _names,
    "type": _type,
    **dict.fromkeys(COUNTS, _count),
    **dict.fromkeys(NUMBERS, _number),
}
"""Functions that return the value of a plain keyword, or raise Unreadable."""
