"""ThinkingScanner: finds the thinking at the start of generated text."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from core.contract.params import Thinking

_BLANKS = " \t\r\n"
_LINE_BREAKS = "\r\n"


class _Phase(Enum):
    BEFORE = auto()
    THINKING = auto()
    ANSWER = auto()


class Split(NamedTuple):
    """Text that became certain. ``source`` and ``answer`` together are the generated text.

    ``source`` is thinking as it was generated, with markers and blanks around them. ``thinking``
    is the same without them; it may come later than its source.
    """

    source: str
    thinking: str
    answer: str


class ThinkingScanner:
    """Splits generated text into thinking and answer. Sans-IO and owned by one sequence.

    Thinking starts with the text, after blanks at most. It starts with the ``begin`` marker, or at
    once if the prompt has opened it; a repeated ``begin`` is then a marker too. It ends with the
    first ``end`` marker. Markers elsewhere are text. Line breaks next to the markers belong to
    them; those after ``end`` are left in the answer.

    This is the only place that looks for the markers: stop strings, the thinking budget, usage
    counts and the server use its results.
    """

    __slots__ = (
        "_budget",
        "_has_begun",
        "_held",
        "_num_before",
        "_num_fed",
        "_phase",
        "_thinking",
        "has_thinking",
        "num_tokens",
    )

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._phase = _Phase.BEFORE
        self._held = ""
        self._has_begun = False  # whether any thinking was returned
        self._num_fed = 0
        self._num_before = 0  # tokens up to and including the begin marker
        self.has_thinking = thinking.is_open
        """Whether the text begins with thinking, as far as it is known."""
        self.num_tokens = 0
        """Tokens of thinking so far, its markers included."""

    @property
    def is_over(self) -> bool:
        """Whether all further text is answer."""
        return self._phase is _Phase.ANSWER

    @property
    def must_end(self) -> bool:
        """Whether the text is inside the thinking and the budget is used up."""
        budget = self._thinking.budget
        return (
            budget is not None
            and self.has_thinking
            and not self.is_over
            and self.num_tokens - self._num_before >= budget
        )

    def feed(self, text: str, *, num_tokens: int = 1) -> Split:
        """Add the text of the next ``num_tokens`` tokens."""
        if self._phase is _Phase.ANSWER:
            return Split("", "", text)
        self._num_fed += num_tokens
        if self._phase is _Phase.BEFORE:
            split = self._begin(text)
        else:
            self._held += text
            split = self._think(text)
        if self.has_thinking:
            self.num_tokens = self._num_fed
        return split

    def finish(self) -> Split:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        if self._phase is _Phase.ANSWER:
            return Split("", "", "")
        self._phase = _Phase.ANSWER
        if not self.has_thinking:
            return Split("", "", held)
        return Split("", held if self._has_begun else held.lstrip(_LINE_BREAKS), "")

    def _begin(self, text: str) -> Split:
        """Look for the begin marker."""
        begin, is_open = self._thinking.begin, self._thinking.is_open
        self._held += text
        start = self._held.lstrip(_BLANKS)
        if not start.startswith(begin):
            if begin.startswith(start):  # undecided
                return Split(text if is_open else "", "", "")
            if not is_open:
                self._phase = _Phase.ANSWER
                answer, self._held = self._held, ""
                return Split("", "", answer)
            self._phase = _Phase.THINKING
            return self._think(text)
        source = text if is_open else self._held
        self._phase = _Phase.THINKING
        self._held = start[len(begin) :]
        if not is_open:
            self.has_thinking = True
            self._num_before = self._num_fed
        return self._think(source)

    def _think(self, source: str) -> Split:
        """Look for the end marker; ``source`` is the text that was not returned yet."""
        held = self._held if self._has_begun else self._held.lstrip(_LINE_BREAKS)
        end = self._thinking.end
        place = held.find(end)
        if place >= 0:
            self._phase = _Phase.ANSWER
            self._held = ""
            answer = held[place + len(end) :]
            source = source[: len(source) - len(answer)]
            return Split(source, held[:place].rstrip(_LINE_BREAKS), answer)
        thinking = held[: _possible_start(held, end)].rstrip(_LINE_BREAKS)
        self._has_begun = self._has_begun or bool(thinking)
        self._held = held[len(thinking) :]
        return Split(source, thinking, "")


def _possible_start(text: str, marker: str) -> int:
    """Return where a proper beginning of ``marker`` starts at the end of ``text``."""
    for start in range(max(0, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[start:]):
            return start
    return len(text)
