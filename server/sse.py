"""Server-sent events: frames of bytes. Every event is ``data: `` and one line of JSON."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from schemas.errors import ErrorObject
from server.errors import encode_error

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
"""Ignored by every client; resets read timeouts."""

HOLE = uuid4().hex
"""The text that a Template takes the place of; nobody can have written it."""

_encoder = msgspec.json.Encoder()
_HOLE = _encoder.encode(HOLE)
_LINE_SEPARATOR, _PARAGRAPH_SEPARATOR = "\u2028".encode(), "\u2029".encode()


class Template:
    """An event that is encoded once and sent with many texts: filling it costs a microsecond."""

    __slots__ = ("_parts",)

    def __init__(self, event: bytes) -> None:
        """``event`` is a frame in which one string or several are HOLE."""
        self._parts = event.split(_HOLE)
        assert len(self._parts) > 1

    def fill(self, text: str) -> bytes:
        """The event as ``frame`` would have made it with this text."""
        return _one_line(_encoder.encode(text)).join(self._parts)


def frame(chunk: msgspec.Struct) -> bytes:
    """One event."""
    return _event(_encoder.encode(chunk))


def error_frame(error: ErrorObject) -> bytes:
    """The event that says why a stream ends early."""
    return _event(encode_error(error))


def _event(data: bytes) -> bytes:
    return b"data: " + _one_line(data) + b"\n\n"


def _one_line(data: bytes) -> bytes:
    """JSON has no ends of line, but some clients take these two characters for such."""
    if b"\xe2\x80" not in data:
        return data
    return data.replace(_LINE_SEPARATOR, b"\\u2028").replace(_PARAGRAPH_SEPARATOR, b"\\u2029")
