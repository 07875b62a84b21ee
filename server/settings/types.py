"""Converters of flags: text to value. They raise ArgumentTypeError, which becomes one line."""

from __future__ import annotations

import math
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_THREADS = 4096
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True, slots=True)
class Rates:
    """Most requests and tokens of each tenant in a minute; 0: no limit."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class OneOf:
    """One of some words. Unlike argparse's ``choices`` it also checks environment variables."""

    choices: Sequence[str]
    elsewhere: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Words that belong to another flag, and that flag."""

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            other = f"; it is one of {self.elsewhere[text]}" if text in self.elsewhere else ""
            raise ArgumentTypeError(f"{text} is not one of {', '.join(self.choices)}{other}")
        return text


def path(text: str) -> str:
    """Convert a path, or a hub id in its place: ``~`` is a home directory, as in a shell."""
    return os.path.expanduser(text)  # noqa: PTH111 - Path would change a hub id or an empty text


def file(text: str) -> Path:
    return Path(path(text))


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is not a whole number") from None


def positive(text: str) -> int:
    value = _size(text)
    if value < 1:
        raise ArgumentTypeError(f"{text} is not above 0")
    return value


def threads(text: str) -> int:
    """Convert a number of threads."""
    value = integer(text)
    if not 1 <= value <= _MOST_THREADS:
        raise ArgumentTypeError(f"{text} is not a number of threads, from 1 to {_MOST_THREADS}")
    return value


def not_negative(text: str) -> int:
    value = _size(text)
    if value < 0:
        raise ArgumentTypeError(f"{text} is below 0")
    return value


def _size(text: str) -> int:
    """Convert a whole number that Python's containers may have as a size."""
    value = integer(text)
    if value > sys.maxsize:
        raise ArgumentTypeError(f"{text} is too large")
    return value


def port(text: str) -> int:
    """Convert a TCP port; 0 is any free one."""
    value = integer(text)
    if not 0 <= value <= 65535:
        raise ArgumentTypeError(f"{text} is not a port")
    return value


def number(text: str) -> float:
    """Convert a finite number."""
    value = _float(text)
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text} is not a number")
    return value


def positive_number(text: str) -> float:
    value = number(text)
    if value <= 0:
        raise ArgumentTypeError(f"{text} is not above 0")
    return value


def not_negative_number(text: str) -> float:
    value = number(text)
    if value < 0:
        raise ArgumentTypeError(f"{text} is below 0")
    return value


def seconds(text: str) -> float:
    """Convert a finite number of seconds from 0."""
    value = _float(text)
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def timeout(text: str) -> float:
    """Convert a finite number of seconds above 0."""
    value = seconds(text)
    if not value:
        raise ArgumentTypeError(f"{text} is not above 0")
    return value


def milliseconds(text: str) -> float:
    """Convert milliseconds to seconds."""
    return not_negative_number(text) / 1e3


def share(text: str) -> float:
    """Convert a part of a whole: above 0 and at most 1."""
    value = _float(text)
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def probability(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def length_range(text: str) -> tuple[int, int]:
    """Convert ``N`` or ``LOW-HIGH`` to the least and the greatest length, both above 0."""
    low, dash, high = text.partition("-")
    least = positive(low)
    most = positive(high) if dash else least
    if least > most:
        raise ArgumentTypeError(f"{text} is not a range")
    return least, most


def sizes_or_any(text: str) -> tuple[int, ...]:
    """Convert ``any`` to no sizes, or ``512,256`` to those."""
    return () if text == "any" else tuple(map(positive, text.split(",")))


def two_texts(text: str) -> tuple[str, str]:
    """Convert ``yes,no``."""
    first, _, second = text.partition(",")
    if not first or not second:
        raise ArgumentTypeError(f"{text} is not two texts such as yes,no")
    return first, second


def size(text: str) -> int:
    """Convert ``4GiB``, ``500MB`` or ``65536`` to bytes."""
    digits = text.lower().removesuffix("b").strip()
    unit = digits.lstrip("0123456789.")
    try:
        value = int(float(digits.removesuffix(unit)) * _UNITS[unit.strip()])
    except (KeyError, ValueError, OverflowError):
        raise ArgumentTypeError(f"{text} is not a size such as 4GiB") from None
    if value < 1:
        raise ArgumentTypeError(f"{text} is not above 0")
    return value


def size_text(size: int) -> str:
    """Return the shortest text that ``size`` converts to this number."""
    for unit in ("gi", "mi", "ki"):
        count, rest = divmod(size, _UNITS[unit])
        if count and not rest:
            return f"{count}{unit.capitalize()}B"
    return str(size)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
