"""Reader: a grammar written as straight code, over text that comes in pieces.

Its methods are coroutines that suspend where they need more text. Every suspension may move the
positions, so callers keep none of their own and use ``position`` and ``mark``.

JSON values and strings read from a Reader, as far as their text has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from server.parsers.json_scan import JsonScanner, Scan, StringScanner, after_blanks
from server.parsers.tails import held_from

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A coroutine that yields when it needs more text, and returns T."""

MAX_WORD = 256

_WORD = re.compile(r"[\w.-]*")


class Malformed(Exception):
    """The text at the reader's position is not what the grammar wants."""


class EndOfText(Exception):
    """The grammar wants more text and no more comes."""


class Reader:
    """The text so far. Before ``position`` it has been read, before ``mark`` it is committed.

    What raises ``Malformed`` leaves ``position`` at the same character however the text was cut.
    """

    __slots__ = ("_has_ended", "mark", "position", "text")

    def __init__(self) -> None:
        self.text = ""
        self.mark = 0
        self.position = 0
        self._has_ended = False

    def push(self, text: str) -> None:
        """Add text, and drop what is committed."""
        self.text = self.text[self.mark :] + text
        self.position -= self.mark
        self.mark = 0

    def end(self) -> None:
        """Note that no more text comes."""
        self._has_ended = True

    def commit(self) -> None:
        """Note that all text read so far has been reported, or is markup of a reported call."""
        self.mark = self.position

    def take(self) -> str:
        """Return the text that was read and is not committed, and commit it."""
        text = self.text[self.mark : self.position]
        self.mark = self.position
        return text

    def wait(self) -> Steps[None]:
        """Wait for more text. Raises EndOfText."""
        if self._has_ended:
            raise EndOfText
        yield

    def wait_for(self, size: int) -> Steps[None]:
        """Wait until at least ``size`` characters follow the position."""
        while self.position + size > len(self.text):
            yield from self.wait()

    def peek(self) -> Steps[str]:
        """Return the next character without reading it."""
        yield from self.wait_for(1)
        return self.text[self.position]

    def blanks(self) -> Steps[None]:
        """Read whitespace; a character follows it."""
        while True:
            self.position = after_blanks(self.text, self.position)
            if self.position < len(self.text):
                return
            yield from self.wait()

    def accept(self, wanted: str) -> Steps[bool]:
        """Read exactly this text if it comes next, else nothing; return whether it did."""
        while not self.text.startswith(wanted, self.position):
            if not wanted.startswith(self.text[self.position : self.position + len(wanted)]):
                return False
            yield from self.wait()
        self.position += len(wanted)
        return True

    def expect(self, wanted: str) -> Steps[None]:
        """Read exactly this text. Raises Malformed if something else comes next."""
        if not (yield from self.accept(wanted)):
            raise Malformed

    def word(self, pattern: re.Pattern[str] = _WORD) -> Steps[str]:
        """Read the longest run of word characters; at least one, at most MAX_WORD."""
        while True:
            match = pattern.match(self.text, self.position)
            assert match is not None
            word = match.group()
            if len(word) > MAX_WORD:
                raise Malformed
            if match.end() < len(self.text):
                break
            yield from self.wait()
        if not word:
            raise Malformed
        self.position += len(word)
        return word

    def until(self, *ends: str) -> Steps[tuple[str, str | None]]:
        """Read on towards the first of ``ends``.

        Returns text that certainly precedes it, perhaps none, and the end if it was reached; the
        end itself is not read.
        """
        while True:
            found = [(place, end) for end in ends if (place := self._find(end)) >= 0]
            place, end = min(found) if found else (self._held(ends), None)
            if end is not None or place > self.position:
                piece = self.text[self.position : place]
                self.position = place
                return piece, end
            yield from self.wait()

    def _find(self, wanted: str) -> int:
        return self.text.find(wanted, self.position)

    def _held(self, ends: tuple[str, ...]) -> int:
        return held_from(self.text, ends, self.position)


_HIGH, _LOW, _AFTER_LOW = "\ud800", "\udc00", "\ue000"
"""Where the high surrogates, the low surrogates and the characters after both begin."""


def read_value(
    reader: Reader, on_text: Callable[[str], object], *, only_object: bool = False
) -> Steps[None]:
    """Read one value; ``on_text`` gets its JSON text piece by piece, see JsonScanner.

    Raises Malformed at the first character that cannot be there, after the text before it.
    """
    scanner = JsonScanner(only_object=only_object)
    while True:
        reader.position, text = scanner.feed(reader.text, reader.position)
        on_text(text)
        if scanner.state is not Scan.RUNNING:
            break
        yield from reader.wait()
    if scanner.state is Scan.MALFORMED:
        raise Malformed


def read_string(reader: Reader) -> Steps[str]:
    """Read one string and return its meaning. Raises Malformed for anything else."""
    yield from reader.expect('"')
    pieces = []
    while (unit := (yield from peek_unit(reader))) is not None:
        pieces.append(unit[0])
        reader.position += unit[1]
    reader.position += 1
    return "".join(pieces)


def peek_unit(reader: Reader) -> Steps[tuple[str, int] | None]:
    """Return the next unit of a string's inside, without reading it; None at the closing quote.

    A unit is a run of plain characters or one escape (or two, a surrogate pair): its meaning,
    and its size in the text. Raises Malformed, also for a surrogate without its partner.
    """
    meaning, size = yield from _scan_unit(reader, 0)
    if not meaning:
        return None
    is_escape = reader.text[reader.position] == "\\"
    if not is_escape or not _HIGH <= meaning < _AFTER_LOW:
        return meaning, size
    yield from reader.wait_for(size + 1)
    if meaning >= _LOW:
        raise Malformed
    is_escape = reader.text[reader.position + size] == "\\"
    low, end = yield from _scan_unit(reader, size)
    if not is_escape or not _LOW <= low < _AFTER_LOW:
        raise Malformed
    return (meaning + low).encode("utf-16", "surrogatepass").decode("utf-16"), end


def _scan_unit(reader: Reader, offset: int) -> Steps[tuple[str, int]]:
    """Look at the unit that begins ``offset`` characters ahead.

    Returns its meaning, "" for the closing quote, and the offset of its end.
    """
    scanner = StringScanner()
    while not scanner.unit and scanner.state is Scan.RUNNING:
        yield from reader.wait_for(offset + 1)
        offset = scanner.step(reader.text, reader.position + offset) - reader.position
    if scanner.state is Scan.MALFORMED:
        raise Malformed
    return scanner.unit, offset
