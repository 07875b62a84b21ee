"""Python literals that JSON can express, read from a Reader as compact JSON."""

from __future__ import annotations

import json
import math
import re

from server.parsers.text.reader import Malformed, Reader, Steps

MAX_DEPTH = 64

_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "\"'"}
_ESCAPE = re.compile(
    r"\\(?:\r\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL
)
_MEANINGS = dict(zip("ntrbfva", "\n\t\r\b\f\v\a", strict=True)) | {"\n": "", "\r\n": ""}
_MEANINGS |= {character: character for character in "\\'\"/"}
_WORD = re.compile(r"[\w.+-]*")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NAMES = {"True": "true", "False": "false", "None": "null"} | {
    name: name for name in ("true", "false", "null")
}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


def literal(reader: Reader, depth: int = 0) -> Steps[str]:
    """Read one literal; a character follows it, unless it ends with a bracket or quote.

    Literals are strings without prefixes, numbers, lists, tuples, dictionaries with string keys,
    ``True``, ``False``, ``None`` and their JSON spellings. Raises Malformed.
    """
    if depth > MAX_DEPTH:
        raise Malformed
    first = yield from reader.peek()
    if first in "\"'":
        return json.dumps((yield from string(reader)), ensure_ascii=False)
    if first in _CLOSERS:
        return (yield from _collection(reader, depth))
    word = yield from reader.word(_WORD)
    try:
        return _NAMES.get(word) or _number(word)
    except (ValueError, OverflowError):
        reader.position -= len(word)
        raise Malformed from None


def string(reader: Reader) -> Steps[str]:
    """Read a string literal in any quotes and return its meaning. Raises Malformed."""
    quote = yield from reader.peek()
    end = quote
    if (yield from reader.accept(quote * 2)):
        if not (yield from reader.accept(quote)):
            return ""
        end = quote * 3
    else:
        reader.position += 1
    raw = []
    while not (yield from reader.accept(end)):
        if (yield from reader.peek()) == "\\":
            yield from reader.wait_for(2)
            size = 2
        else:
            match = _PLAIN[quote].match(reader.text, reader.position)
            size = len(match.group()) if match else 1
        raw.append(reader.text[reader.position : reader.position + size])
        reader.position += size
    try:
        meaning = _ESCAPE.sub(_unescape, "".join(raw))
        return meaning.encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise Malformed from None


def _unescape(match: re.Match[str]) -> str:
    body = match.group()[1:]
    if body[0] in "01234567":
        return chr(int(body, 8))
    if body[0] in "xuU" and len(body) > 1:
        return chr(int(body[1:], 16))
    return _MEANINGS.get(body, match.group())


def _number(word: str) -> str:
    if _JSON_NUMBER.fullmatch(word):
        return word
    try:
        return str(int(word, 0))
    except ValueError:
        number = float(word)
        if not math.isfinite(number):
            raise
        return repr(number)


def _collection(reader: Reader, depth: int) -> Steps[str]:
    opener = reader.text[reader.position]
    items: list[str] = []

    def item() -> Steps[None]:
        label = ""
        if opener == "{":
            if (yield from reader.peek()) not in "\"'":
                raise Malformed
            label = json.dumps((yield from string(reader)), ensure_ascii=False) + ":"
            yield from reader.blanks()
            yield from reader.expect(":")
            yield from reader.blanks()
        items.append(label + (yield from literal(reader, depth + 1)))

    reader.position += 1
    yield from reader.items(_CLOSERS[opener], item)
    whole = ",".join(items)
    return f"{{{whole}}}" if opener == "{" else f"[{whole}]"
