"""Puts the deltas of one choice together. A stream sends the deltas, a whole response this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning


class Call(msgspec.Struct, frozen=True):
    """One tool call. ``arguments`` is JSON text, incomplete if the output ended inside it."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """The message of a choice. ``content`` is None if it consists of calls only."""

    content: str | None
    reasoning: str | None
    calls: tuple[Call, ...]


def fold(deltas: Iterable[Delta]) -> Message:
    """The message that a choice's deltas add up to."""
    content: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegin] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegin():
                begun.append(delta)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
            case _:
                assert_never(delta)
    return Message(
        content=None if begun and not content else "".join(content),
        reasoning="".join(reasoning) or None,
        calls=tuple(
            Call(call.id, call.name, "".join(pieces))
            for call, pieces in zip(begun, arguments, strict=True)
        ),
    )
