"""Converters of flags: text to value. They raise ArgumentTypeError, which becomes one line."""

from __future__ import annotations

import math
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

N = TypeVar("N", int, float)
S = TypeVar("S", bound=msgspec.Struct)

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
    """Words that belong to another flag, and that flag. argparse hashes converters."""

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            other = f"; it is one of {self.elsewhere[text]}" if text in self.elsewhere else ""
            raise ArgumentTypeError(f"{text} is not one of {', '.join(self.choices)}{other}")
        return text

    @property
    def metavar(self) -> str:
        return "{" + ",".join(self.choices) + "}"


@dataclass(frozen=True)
class Number(Generic[N]):
    """A number that ``read`` converts, within bounds. ``wrong`` says what others are."""

    read: Callable[[str], N]
    wrong: str
    least: float
    most: float
    metavar: str = ""

    def __call__(self, text: str) -> N:
        value = self.read(text)
        if not self.least <= value <= self.most:
            raise ArgumentTypeError(f"{text} is {self.wrong}")
        return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _num_bytes(text: str) -> int:
    digits = text.lower().removesuffix("b").strip()
    unit = digits.lstrip("0123456789.")
    try:
        return int(float(digits.removesuffix(unit)) * _UNITS[unit.strip()])
    except (KeyError, ValueError, OverflowError):
        raise ArgumentTypeError(f"{text} is not a size such as 4GiB") from None


_LEAST, _MOST = math.nextafter(0.0, 1.0), sys.float_info.max  # above 0; finite
integer = Number(_integer, "", -math.inf, math.inf, "N")
_container_size = Number(_integer, "too large", -math.inf, sys.maxsize)
positive = Number(_container_size, "not above 0", 1, math.inf, "N")
not_negative = Number(_container_size, "below 0", 0, math.inf, "N")
threads = Number(
    _integer, f"not a number of threads, from 1 to {_MOST_THREADS}", 1, _MOST_THREADS, "N"
)
port = Number(_integer, "not a port", 0, 65535, "PORT")
size = Number(_num_bytes, "not above 0", 1, math.inf, "SIZE")  # 4GiB, 500MB or 65536, in bytes
number = Number(_float, "not a number", -_MOST, _MOST)
positive_number = Number(number, "not above 0", _LEAST, _MOST)
not_negative_number = Number(number, "below 0", 0, _MOST)
probability = Number(number, "not between 0 and 1", 0, 1)
share = Number(_float, "not above 0 and at most 1", _LEAST, 1, "SHARE")
seconds = Number(_float, "not a number of seconds", 0, _MOST, "SECONDS")
timeout = Number(seconds, "not above 0", _LEAST, _MOST, "SECONDS")


def size_text(num_bytes: int) -> str:
    """Return the shortest text that ``size`` converts to this number."""
    for unit in ("gi", "mi", "ki"):
        count, rest = divmod(num_bytes, _UNITS[unit])
        if count and not rest:
            return f"{count}{unit.capitalize()}B"
    return str(num_bytes)


def path(text: str) -> str:
    """Convert a path, or a hub id in its place: ``~`` is a home directory, as in a shell."""
    return os.path.expanduser(text)  # noqa: PTH111 - Path would change a hub id or an empty text


def sizes_or_any(text: str) -> tuple[int, ...]:
    """Convert ``any`` to no sizes, or ``512,256`` to those."""
    return () if text == "any" else tuple(map(positive, text.split(",")))


def two_texts(text: str) -> tuple[str, str]:
    """Convert ``yes,no``."""
    first, _, second = text.partition(",")
    if not first or not second:
        raise ArgumentTypeError(f"{text} is not two texts such as yes,no")
    return first, second


def struct_of(kind: type[S], options: Mapping[str, Any], **own: Any) -> S:
    """Make a struct of those of its fields that are among the options, and of ``own``."""
    fields = {name: options[name] for name in kind.__struct_fields__ if name in options}
    return kind(**(fields | own))
