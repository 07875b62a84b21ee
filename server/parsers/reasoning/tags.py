"""TagParser: parts the thinking, which stands first and between two tags, from the answer."""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from server.parsers.base import Content, Delta, Reasoning
from server.parsers.tails import held_from

_BLANKS = " \t\r\n"
_BREAKS = "\r\n"


class _Phase(Enum):
    BEFORE = auto()
    THINKING = auto()
    AFTER = auto()
    ANSWER = auto()


class TagParser:
    """Parses the text of one choice. A family says what its tags are.

    See Parser. Only thinking that begins the text counts; tags further on are text. Where the
    prompt ends with the opening tag the text is inside from the start, and may repeat the tag.
    Line breaks next to the tags belong to them. Thinking that does not end is all reasoning.
    """

    opening: ClassVar[str]
    closing: ClassVar[str]

    def __init__(self, prompt_tail: str = "") -> None:
        """``prompt_tail`` is the end of the rendered prompt: the tag if it is there, and blanks."""
        self._is_open = prompt_tail.rstrip().endswith(self.opening)
        self._phase = _Phase.BEFORE
        self._held = ""
        self._has_begun = False  # whether any reasoning was given

    @property
    def is_reasoning(self) -> bool:
        """Whether the text so far ends within the thinking."""
        return self._phase is _Phase.THINKING or (self._phase is _Phase.BEFORE and self._is_open)

    @property
    def is_over(self) -> bool:
        """Whether the answer has begun, so that all further text is part of it."""
        return self._phase is _Phase.ANSWER

    def feed(self, text: str) -> list[Delta]:
        """See Parser."""
        if not text:
            return []
        if self._phase is _Phase.ANSWER:
            return [Content(text)]
        self._held += text
        deltas: list[Delta] = []
        if self._phase is _Phase.BEFORE:
            self._begin()
        if self._phase is _Phase.THINKING:
            self._think(deltas)
        if self._phase is _Phase.AFTER:
            self._held = self._held.lstrip(_BREAKS)
            if self._held:
                self._phase = _Phase.ANSWER
        if self._phase is _Phase.ANSWER and self._held:
            deltas.append(Content(self._held))
            self._held = ""
        return deltas

    def finish(self) -> list[Delta]:
        """See Parser."""
        held, self._held = self._held, ""
        if self.is_reasoning and not self._has_begun:
            held = held.lstrip(_BREAKS)
        if not held or self._phase is _Phase.AFTER:
            return []
        return [Reasoning(held) if self.is_reasoning else Content(held)]

    def _begin(self) -> None:
        """See whether the text begins with thinking."""
        text = self._held.lstrip(_BLANKS)
        if text.startswith(self.opening):
            self._phase = _Phase.THINKING
            self._held = text[len(self.opening) :]
        elif not self.opening.startswith(text):
            self._phase = _Phase.THINKING if self._is_open else _Phase.ANSWER

    def _think(self, deltas: list[Delta]) -> None:
        """Give the thinking that has surely come, and see whether it ends."""
        text = self._held if self._has_begun else self._held.lstrip(_BREAKS)
        end = text.find(self.closing)
        if end >= 0:
            self._phase = _Phase.AFTER
            self._held = text[end + len(self.closing) :]
            thought = text[:end].rstrip(_BREAKS)
        else:
            thought = text[: held_from(text, (self.closing,))].rstrip(_BREAKS)
            self._held = text[len(thought) :]
        if thought:
            self._has_begun = True
            deltas.append(Reasoning(thought))
