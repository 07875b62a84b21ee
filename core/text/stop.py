"""StopMatcher: finds stop strings in text that arrives in pieces.

Sans-IO and owned by one sequence: ``feed`` each piece, ``finish`` once.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Looks for several stop strings in generated text. Holds back only what may start a match.

    The match that completes first wins; of two that complete at the same character, the one
    listed first. The text is cut where that match begins, or where it ends with ``include``.
    Characters are compared exactly: case, whitespace and Unicode normalisation matter.

    Time is linear in the text for each stop string, whatever its length. Memory beyond the
    strings is at most one integer for each of their matched characters.
    """

    __slots__ = ("_beginnings", "_include", "_needles", "_num_held", "_widest", "matched")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        """``stops`` holds at least one string, none of them empty."""
        self._needles = [_Needle(stop) for stop in stops]
        self._beginnings = frozenset(stop[0] for stop in stops)
        self._include = include
        # Text held back is always the beginning of a stop string, so it is not stored.
        self._widest = self._needles[0]
        self._num_held = 0
        self.matched: str | None = None
        """The stop string that was found."""

    def feed(self, text: str) -> str:
        """Add text. Return the held and new text that can no longer be part of a match.

        After a match this is always empty.
        """
        if self.matched is not None:
            return ""
        if self._num_held == 0 and self._beginnings.isdisjoint(text):
            return text
        first: tuple[int, _Needle] | None = None
        for needle in self._needles:
            end = needle.feed(text)
            if end is not None and (first is None or end < first[0]):
                first = end, needle
        if first is not None:
            return self._cut(text, *first)
        widest = max(self._needles, key=_num_matched)
        num_released = self._num_held + len(text) - widest.num_matched
        released = self._head(text, num_released)
        self._widest, self._num_held = widest, widest.num_matched
        return released

    def finish(self) -> str:
        """Return the text that was held back; no more text comes."""
        held = self._head("", self._num_held)
        self._num_held = 0
        return held

    def _cut(self, text: str, end: int, needle: _Needle) -> str:
        self.matched = needle.stop
        size = 0 if self._include else len(needle.stop)
        released = self._head(text, self._num_held + end - size)
        self._num_held = 0
        return released

    def _head(self, text: str, size: int) -> str:
        """Return the first ``size`` characters of the held text followed by ``text``."""
        if size <= self._num_held:
            return self._widest.stop[:size]
        return self._widest.stop[: self._num_held] + text[: size - self._num_held]


class _Needle:
    """One stop string, matched as by Knuth, Morris and Pratt (1977)."""

    __slots__ = ("_borders", "num_matched", "stop")

    def __init__(self, stop: str) -> None:
        assert stop
        self.stop = stop
        self.num_matched = 0
        # _borders[i]: length of the longest proper prefix of stop[: i + 1] that is also its suffix.
        # Computed as far as the text has matched, so that a long stop string costs nothing before.
        self._borders = [0]

    def feed(self, text: str) -> int | None:
        """Return the position in ``text`` right after the first match, None without one."""
        stop = self.stop
        matched = self.num_matched
        position = 0
        while position < len(text):
            if matched == 0:
                position = text.find(stop[0], position)
                if position < 0:
                    break
                matched = 1
                position += 1
            elif stop[matched] == text[position]:
                matched += 1
                position += 1
            else:
                matched = self._border(matched)
            if matched == len(stop):
                return position
        self.num_matched = matched
        return None

    def _border(self, size: int) -> int:
        """Return the length of the longest proper border of the first ``size`` characters."""
        stop, borders = self.stop, self._borders
        while len(borders) < size:
            last = stop[len(borders)]
            border = borders[-1]
            while border and stop[border] != last:
                border = borders[border - 1]
            borders.append(border + (stop[border] == last))
        return borders[size - 1]


def _num_matched(needle: _Needle) -> int:
    return needle.num_matched
