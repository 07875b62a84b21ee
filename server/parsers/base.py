"""Deltas: what all parsers return. A stream sends them, a whole response what they add up to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TypeAlias, assert_never

import msgspec


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


def new_call_id() -> str:
    """Return a fresh id in OpenAI's form, ``call_`` and 24 letters or digits."""
    return "call_" + secrets.token_hex(12)


class ParsedCall(msgspec.Struct, frozen=True):
    """One tool call. ``arguments`` is JSON text, incomplete if the output ended inside it."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """The message of a choice. ``content`` is None if it consists of calls only."""

    content: str | None
    reasoning: str | None
    calls: tuple[ParsedCall, ...]


def fold(deltas: Iterable[Delta]) -> Message:
    """The message that a choice's deltas add up to."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[tuple[CallBegin, list[str]]] = []
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegin():
                calls.append((delta, []))
            case CallArguments(index, text):
                calls[index][1].append(text)
            case _:
                assert_never(delta)
    return Message(
        content=None if calls and not content else "".join(content),
        reasoning="".join(reasoning) or None,
        calls=tuple(ParsedCall(call.id, call.name, "".join(pieces)) for call, pieces in calls),
    )
