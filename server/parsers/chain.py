"""ChoiceParser: one choice's text through its reasoning and tool-call parsers; and the message.

A streamed answer sends the deltas, a whole one folds them: both come from the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from server.parsers.base import CallArguments, CallBegin, Content, Delta, Parser, Reasoning
from server.parsers.reasoning.tags import TagParser


class Call(msgspec.Struct, frozen=True):
    """One call of a message. ``arguments`` is JSON text, cut short if the answer was."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """What a choice says. ``content`` is None when it is calls and nothing else."""

    content: str | None
    reasoning: str | None
    calls: tuple[Call, ...]


class ChoiceParser:
    """See Parser. With neither parser the text passes through.

    Once thinking has ended, and from the start where there is none, text goes to the tool-call
    parser; calls inside of the thinking are thoughts.
    """

    __slots__ = ("_calls", "_reasoning")

    def __init__(self, reasoning: TagParser | None = None, calls: Parser | None = None) -> None:
        self._reasoning = reasoning
        self._calls = calls

    @property
    def is_reasoning(self) -> bool:
        """Whether the text so far ends within the thinking."""
        return self._reasoning is not None and self._reasoning.is_reasoning

    @property
    def is_transparent(self) -> bool:
        """Whether all further text is content as it stands, each piece at once."""
        return self._calls is None and (self._reasoning is None or self._reasoning.is_over)

    def feed(self, text: str) -> list[Delta]:
        """See Parser."""
        if self._reasoning is not None:
            return self._parse(self._reasoning.feed(text))
        if self._calls is not None:
            return self._calls.feed(text)
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        """See Parser."""
        deltas = [] if self._reasoning is None else self._parse(self._reasoning.finish())
        return deltas if self._calls is None else deltas + self._calls.finish()

    def whole(self, text: str) -> Message:
        """Give the message that the whole text is. Instead of ``feed`` and ``finish``."""
        return fold(self.feed(text) + self.finish())

    def _parse(self, deltas: list[Delta]) -> list[Delta]:
        """Let the tool-call parser see the content."""
        if self._calls is None:
            return deltas
        parsed: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, Content):
                parsed += self._calls.feed(delta.text)
            else:
                parsed.append(delta)
        return parsed


def fold(deltas: Iterable[Delta]) -> Message:
    """Put a choice's deltas together."""
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
