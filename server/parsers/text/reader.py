"""Reader: a grammar written as straight code, over text that comes in pieces.

Its methods are coroutines that suspend where they need more text. Every suspension may move the
positions, so callers keep none of their own and use ``position`` and ``mark``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

from server.parsers.text.json_scan import JsonScanner, Scan

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A coroutine that yields when it needs more text, and returns T."""

MAX_WORD = 256

_WORD = re.compile(r"[\w.-]*")
_BLANKS = re.compile(r"[ \t\r\n]*")
_HIGH, _LOW = r"u[dD][89abAB][0-9a-fA-F]{2}", r"u[dD][c-fC-F][0-9a-fA-F]{2}"
_UNIT = re.compile(
    rf'[^"\\]+|\\(?:["\\/bfnrt]|{_HIGH}\\{_LOW}|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}})'
)
_LONGEST_UNITS = (r"\u0000", r"\ud800\udc00")


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

    def until(self, on_text: Callable[[str], object], *ends: str) -> Steps[str]:
        """Read on to the first of ``ends``, which is not read, and return it.

        ``on_text`` gets the text before it, piece by piece. The longest tail that may begin an
        end is held back.
        """
        while True:
            match = _ends(ends).search(self.text, self.position)
            end: str | None = match["end"] if match else None
            start, self.position = self.position, match.start() if match else len(self.text)
            if end or self.position > start:
                on_text(self.text[start : self.position])
            if end:
                return end
            yield from self.wait()

    def items(self, closer: str, read_item: Callable[[], Steps[None]]) -> Steps[None]:
        """Read items up to and including ``closer``; a comma after the last one is optional."""
        yield from self.blanks()
        while not (yield from self.accept(closer)):
            yield from read_item()
            yield from self.blanks()
            if not (yield from self.accept(",")) and (yield from self.peek()) != closer:
                raise Malformed
            yield from self.blanks()

    def value(self, on_text: Callable[[str], object], *, only_object: bool = False) -> Steps[None]:
        """Read a JSON value; ``on_text`` gets its text piece by piece, see JsonScanner.

        Raises Malformed at the first character that cannot be there, after the text before it.
        """
        scanner = JsonScanner(only_object=only_object)
        while True:
            self.position, text = scanner.feed(self.text, self.position)
            on_text(text)
            if scanner.state is not Scan.RUNNING:
                break
            yield from self.wait()
        if scanner.state is Scan.MALFORMED:
            raise Malformed

    def string(self) -> Steps[str]:
        """Read a JSON string and return its meaning. Raises Malformed for anything else."""
        yield from self.expect('"')
        pieces = []
        while unit := (yield from self.peek_unit()):
            pieces.append(unit_meaning(unit))
            self.position += len(unit)
        self.position += 1
        return "".join(pieces)

    def peek_unit(self) -> Steps[str]:
        """Return the next unit of a JSON string's inside, without reading it.

        A unit is a run of plain characters, an escape, or two that are a surrogate pair; empty at
        the closing quote. Raises Malformed, also for a surrogate without its partner.
        """
        while True:
            if match := _UNIT.match(self.text, self.position):
                return match.group()
            if self.text.startswith('"', self.position):
                return ""
            rest = self.text[self.position :]
            if not any(_UNIT.fullmatch(rest + whole[len(rest) :]) for whole in _LONGEST_UNITS):
                raise Malformed
            yield from self.wait()


def unit_meaning(unit: str) -> str:
    """The text that a unit of a JSON string's inside encodes."""
    meaning: str = json.loads(f'"{unit}"', strict=False)
    return meaning


@lru_cache(maxsize=64)
def _ends(ends: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern of all ``ends``, group ``end``, and of their proper prefixes at a text's end."""
    whole = "|".join(map(re.escape, ends))
    tails = [re.escape(end[:size]) for end in ends for size in range(1, len(end))]
    return re.compile(rf"(?P<end>{whole})|(?:{'|'.join(tails) or '(?!)'})\Z")


def after_blanks(text: str, position: int) -> int:
    """Return the position of the first character from ``position`` that is no JSON whitespace."""
    match = _BLANKS.match(text, position)
    assert match is not None
    return match.end()
