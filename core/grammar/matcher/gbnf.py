"""GBNF: what llguidance's conversion to Lark does not read."""

from __future__ import annotations

import re

from core.contract.errors import InvalidRequest

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
_MAX_ASCII = 0x7F


def with_characters(source: str) -> str:
    r"""A GBNF grammar with characters in place of ``\uXXXX`` and ``\UXXXXXXXX``.

    ASCII, which may have a meaning there, becomes ``\xXX``. Raises InvalidRequest for numbers that
    are no characters. (Source of the escapes: llama.cpp, grammars/README.md.)
    """
    return _ESCAPE.sub(_character, source)


def _character(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    if digits is None:
        return match[0]
    code = int(digits, 16)
    if code <= _MAX_ASCII:
        return f"\\x{code:02X}"
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise InvalidRequest(
            f"The grammar is not valid GBNF: '{match[0]}' is no character.", code="invalid_grammar"
        )
    return chr(code)
