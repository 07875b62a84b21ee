"""JsonScanner and StringScanner: follow JSON (RFC 8259) through text that comes in pieces. Sans-IO.

All that the parsers know of JSON's grammar is here; ``json_reader`` drives it over a Reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

MAX_DEPTH = 256
"""Deeper nesting is malformed: the JSON readers of clients recurse."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_LITERALS = {"t": "rue", "f": "alse", "n": "ull"}
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {character: character for character in '"\\/'} | {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_CLOSERS = {"{": "}", "[": "]"}


def _edges(**targets: str) -> dict[str, str]:
    """Spell out transitions: next state = characters."""
    return {character: state for state, characters in targets.items() for character in characters}


_DIGITS = "0123456789"
_NUMBER = {
    "minus": _edges(zero="0", digits="123456789"),
    "zero": _edges(point=".", e="eE"),
    "digits": _edges(digits=_DIGITS, point=".", e="eE"),
    "point": _edges(fraction=_DIGITS),
    "fraction": _edges(fraction=_DIGITS, e="eE"),
    "e": _edges(sign="+-", exponent=_DIGITS),
    "sign": _edges(exponent=_DIGITS),
    "exponent": _edges(exponent=_DIGITS),
}
_NUMBER_START = _edges(minus="-", zero="0", digits="123456789")
_NUMBER_ENDS = frozenset({"zero", "digits", "fraction", "exponent"})


class Scan(Enum):
    """State of a scan."""

    RUNNING = auto()
    DONE = auto()
    MALFORMED = auto()


class StringScanner:
    """Scans the inside of one string, from after the opening quote to the closing one.

    Control characters are accepted, although JSON wants them escaped: models write them.
    Surrogates need not come in pairs.
    """

    __slots__ = ("_escape", "state", "unit")

    def __init__(self) -> None:
        self.state = Scan.RUNNING
        self.unit = ""
        """What the last step completed: a run of plain characters, one control character, or
        the meaning of one escape. Empty within an escape and at the end."""
        self._escape = ""  # as far as it is read

    def step(self, text: str, position: int) -> int:
        """Read one character of ``text`` or more, from ``position``; return the next position.

        A character that cannot be there is not read.
        """
        self.unit = ""
        if self._escape:
            return self._step_in_escape(text[position], position)
        if match := _PLAIN.match(text, position):
            self.unit = match.group()
            return match.end()
        first = text[position]
        if first == '"':
            self.state = Scan.DONE
        elif first == "\\":
            self._escape = first
        else:
            self.unit = first
        return position + 1

    def _step_in_escape(self, character: str, position: int) -> int:
        if len(self._escape) == 1:
            if character in _ESCAPES:
                self.unit, self._escape = _ESCAPES[character], ""
                return position + 1
            is_valid = character == "u"
        else:
            is_valid = character in _HEX
        if not is_valid:
            self.state = Scan.MALFORMED
            return position
        self._escape += character
        digits = self._escape[2:]
        if len(digits) == 4:
            self.unit, self._escape = chr(int(digits, 16)), ""
        return position + 1


_Mode: TypeAlias = "Callable[[JsonScanner, str, int], int]"
"""Reads characters of a text from a position, or changes the mode; returns the next position."""


class JsonScanner:
    r"""Scans one value, character by character, as strictly as the grammar, with one exception.

    Control characters inside strings, which models write where they mean ``\n``, are accepted
    and returned escaped; all other text is returned unchanged. Blanks before the value belong to
    it, blanks after it do not. Time is linear in the text.
    """

    __slots__ = ("_containers", "_is_key", "_mode", "_pending", "_repairs", "_string", "state")

    def __init__(self, *, only_object: bool = False) -> None:
        """With ``only_object``, any other value is malformed at its first character."""
        self.state = Scan.RUNNING
        self._mode: _Mode = JsonScanner._object if only_object else JsonScanner._value
        self._containers: list[str] = []
        self._is_key = False
        self._string = StringScanner()
        self._pending = ""  # the rest of a literal, or the state of a number
        self._repairs: list[int] = []  # positions of control characters in strings

    def feed(self, text: str, start: int = 0) -> tuple[int, str]:
        """Read ``text`` from ``start``; return where that ended and the JSON text that was read.

        It ends at the end of ``text`` while the scan is running, after the value when done, and
        at the first character that cannot be there when malformed.
        """
        position, size = start, len(text)
        while position < size and self.state is Scan.RUNNING:
            position = self._mode(self, text, position)
        if not self._repairs:
            return position, text[start:position]
        pieces: list[str] = []
        for place in self._repairs:
            pieces += text[start:place], json.dumps(text[place])[1:-1]
            start = place + 1
        self._repairs.clear()
        return position, "".join(pieces) + text[start:position]

    def end(self) -> Scan:
        """Return the state if no more text comes: only a bare number can be done by that."""
        if (
            self._mode == JsonScanner._number
            and not self._containers
            and self._pending in _NUMBER_ENDS
        ):
            self.state = Scan.DONE
        return self.state

    def _malformed(self, position: int) -> int:
        self.state = Scan.MALFORMED
        return position

    def _complete(self) -> None:
        """Note that a value has ended."""
        if self._containers:
            self._mode = JsonScanner._next
        else:
            self.state = Scan.DONE

    def _object(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position == len(text):
            return position
        return self._value(text, position) if text[position] == "{" else self._malformed(position)

    def _value(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position == len(text):
            return position
        first = text[position]
        if first == '"':
            self._begin_string(is_key=False)
        elif first in _CLOSERS:
            if len(self._containers) == MAX_DEPTH:
                return self._malformed(position)
            self._containers.append(first)
            self._mode = JsonScanner._first_key if first == "{" else JsonScanner._first_item
        elif first in _NUMBER_START:
            self._pending, self._mode = _NUMBER_START[first], JsonScanner._number
        elif first in _LITERALS:
            self._pending, self._mode = _LITERALS[first], JsonScanner._literal
        else:
            return self._malformed(position)
        return position + 1

    def _first_item(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position == len(text):
            return position
        if text[position] == "]":
            return self._close(position)
        return self._value(text, position)

    def _first_key(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position < len(text) and text[position] == "}":
            return self._close(position)
        return self._key(text, position)

    def _key(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position == len(text):
            return position
        if text[position] != '"':
            return self._malformed(position)
        self._begin_string(is_key=True)
        return position + 1

    def _colon(self, text: str, position: int) -> int:
        position = after_blanks(text, position)
        if position == len(text):
            return position
        if text[position] != ":":
            return self._malformed(position)
        self._mode = JsonScanner._value
        return position + 1

    def _next(self, text: str, position: int) -> int:
        """Read a comma, or the end of the container."""
        position = after_blanks(text, position)
        if position == len(text):
            return position
        container = self._containers[-1]
        if text[position] == _CLOSERS[container]:
            return self._close(position)
        if text[position] != ",":
            return self._malformed(position)
        self._mode = JsonScanner._key if container == "{" else JsonScanner._value
        return position + 1

    def _close(self, position: int) -> int:
        self._containers.pop()
        self._complete()
        return position + 1

    def _begin_string(self, *, is_key: bool) -> None:
        self._is_key = is_key
        self._string = StringScanner()
        self._mode = JsonScanner._in_string

    def _in_string(self, text: str, position: int) -> int:
        end = self._string.step(text, position)
        if self._string.state is Scan.MALFORMED:
            return self._malformed(end)
        if self._string.state is Scan.DONE:
            if self._is_key:
                self._mode = JsonScanner._colon
            else:
                self._complete()
        elif text[position] < " ":
            self._repairs.append(position)
        return end

    def _literal(self, text: str, position: int) -> int:
        if text[position] != self._pending[0]:
            return self._malformed(position)
        self._pending = self._pending[1:]
        if not self._pending:
            self._complete()
        return position + 1

    def _number(self, text: str, position: int) -> int:
        following = _NUMBER[self._pending].get(text[position])
        if following is not None:
            self._pending = following
            return position + 1
        if self._pending not in _NUMBER_ENDS:
            return self._malformed(position)
        self._complete()
        return position


def after_blanks(text: str, position: int) -> int:
    """Return the position of the first character from ``position`` that is no JSON whitespace."""
    match = _BLANKS.match(text, position)
    assert match is not None
    return match.end()
