"""Deltas and the Parser protocol: what all parsers return, and how they are driven."""

from __future__ import annotations

import random
import string
from typing import Protocol, TypeAlias

import msgspec

_ALPHANUMERICS = string.ascii_letters + string.digits
_random = random.SystemRandom()  # a seed set elsewhere must not give two calls the same id


class Content(msgspec.Struct, frozen=True):
    """More of the answer's text. Never empty."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """More of the reasoning that precedes the answer. Never empty."""

    text: str


class CallBegin(msgspec.Struct, frozen=True):
    """A call begins. ``index`` counts the calls of the choice from 0, without gaps."""

    index: int
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of the arguments, JSON text, of the call that began last. Never empty."""

    index: int
    text: str


Delta: TypeAlias = Content | Reasoning | CallBegin | CallArguments


class Parser(Protocol):
    """Parses one choice's text, which comes in pieces of any size.

    However the same text is cut, its concatenated deltas are the same. A parser cannot be used
    again after ``finish``.
    """

    def feed(self, text: str) -> list[Delta]:
        """Return the deltas that are certain now."""

    def finish(self) -> list[Delta]:
        """Return the deltas of the text that was held back. No more text comes."""


def new_call_id() -> str:
    """Return a fresh id in OpenAI's form, ``call_`` and 24 letters or digits."""
    return "call_" + "".join(_random.choices(_ALPHANUMERICS, k=24))
