"""JsonScanner: follows JSON (RFC 8259) through text that comes in pieces. Sans-IO."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

MAX_DEPTH = 256  # deeper nesting is malformed: the JSON readers of clients recurse

_DIGITS = "0123456789"
_HEX = "0123456789abcdefABCDEF"
_CLOSERS = "}]"
_END = "end"  # in place of a next state: the value ends with this character


def _edges(**targets: str) -> dict[str, str]:
    """Transitions from characters to the next state, given as state = characters."""
    return {character: state for state, characters in targets.items() for character in characters}


_VALUE = _edges(
    string='"', object="{", array="[", minus="-", zero="0", digits="123456789", t="t", f="f", n="n"
)
_STATES: dict[str, dict[str, str]] = {
    "only object": _edges(object="{"),
    "value": _VALUE,
    "object": _edges(key='"', end="}"),
    "next key": _edges(key='"'),
    "after key": _edges(value=":"),
    "after item of {": {",": "next key", "}": _END},
    "array": _VALUE | {"]": _END},
    "after item of [": _edges(value=",", end="]"),
    "string": _edges(end='"', escape="\\"),
    "escape": _edges(string='"\\/bfnrt', hex4="u"),
    "hex4": _edges(hex3=_HEX),
    "hex3": _edges(hex2=_HEX),
    "hex2": _edges(hex1=_HEX),
    "hex1": _edges(string=_HEX),
    "minus": _edges(zero="0", digits="123456789"),
    "zero": _edges(point=".", exponent="eE"),
    "digits": _edges(digits=_DIGITS, point=".", exponent="eE"),
    "point": _edges(fraction=_DIGITS),
    "fraction": _edges(fraction=_DIGITS, exponent="eE"),
    "exponent": _edges(sign="+-", power=_DIGITS),
    "sign": _edges(power=_DIGITS),
    "power": _edges(power=_DIGITS),
}
for _literal in ("true", "false", "null"):
    for _size in range(1, len(_literal)):
        _read, _next = _literal[:_size], _literal[: _size + 1]
        _STATES[_read] = {_next[-1]: _END if _next == _literal else _next}

_NUMBER_ENDS = frozenset({"zero", "digits", "fraction", "power"})
_BLANKS = re.compile(r"[ \t\r\n]+")
_PLAIN = re.compile(r'[^"\\]+')
_CONTROL = re.compile(r"[\x00-\x1f]")
_RUNS = {"string": _PLAIN} | dict.fromkeys(
    (
        *("only object", "value", "object", "next key", "after key"),
        *("array", "after item of {", "after item of ["),
    ),
    _BLANKS,
)
"""Characters that leave a state as it is."""


class Scan(Enum):
    RUNNING = auto()
    DONE = auto()
    MALFORMED = auto()


class JsonScanner:
    r"""Scans one value, character by character, as strictly as the grammar, with one exception.

    Control characters inside strings, which models write where they mean ``\n``, are accepted
    and returned escaped; all other text is returned unchanged. Surrogates need not come in pairs.
    Blanks before the value belong to it, blanks after it do not. Time is linear in the text.
    """

    __slots__ = ("_open", "_place", "state")

    def __init__(self, *, only_object: bool = False) -> None:
        """With ``only_object``, any other value is malformed at its first character."""
        self.state = Scan.RUNNING
        self._place = "only object" if only_object else "value"
        self._open: list[str] = []  # brackets, and "key" within a key

    def feed(self, text: str, start: int = 0) -> tuple[int, str]:
        """Read ``text`` from ``start``; return where that ended and the JSON text that was read.

        It ends at the end of ``text`` while the scan is running, after the value when done, and
        at the first character that cannot be there when malformed.
        """
        position = start
        pieces: list[str] = []
        while position < len(text) and self.state is Scan.RUNNING:
            pattern = _RUNS.get(self._place)
            if pattern and (run := pattern.match(text, position)):
                if pattern is _PLAIN and _CONTROL.search(run.group()):
                    pieces += text[start:position], _CONTROL.sub(_escaped, run.group())
                    start = run.end()
                position = run.end()
            elif self._step(text[position]):
                position += 1
        return position, "".join(pieces) + text[start:position]

    def end(self) -> Scan:
        """Return the state if no more text comes: only a bare number can be done by that."""
        if self._place in _NUMBER_ENDS and not self._open:
            self.state = Scan.DONE
        return self.state

    def _step(self, character: str) -> bool:
        """Read a character; return whether it was read, not so if it only ends a number."""
        following = _STATES[self._place].get(character)
        if following is None:
            if self._place in _NUMBER_ENDS:
                self._complete()
            else:
                self.state = Scan.MALFORMED
            return False
        if following == _END:
            if character in _CLOSERS:
                self._open.pop()
            self._complete()
            return True
        if following in ("object", "array"):
            if len(self._open) == MAX_DEPTH:
                self.state = Scan.MALFORMED
                return False
            self._open.append(character)
        elif following == "key":
            self._open.append(following)
            following = "string"
        self._place = following
        return True

    def _complete(self) -> None:
        """Note that a value or a key has ended."""
        if not self._open:
            self.state = Scan.DONE
        elif self._open[-1] == "key":
            self._open.pop()
            self._place = "after key"
        else:
            self._place = f"after item of {self._open[-1]}"


def _escaped(control: re.Match[str]) -> str:
    return json.dumps(control.group())[1:-1]
