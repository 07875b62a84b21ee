"""Server-sent events as bytes. Every event is ``data: `` and one line of JSON."""

from __future__ import annotations

from uuid import uuid4

import msgspec

MEDIA_TYPE = "text/event-stream"

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"  # clients ignore it; it resets read timeouts
PLACEHOLDER = uuid4().hex
"""The text that a Template replaces. It is random, so no client can send it."""

_encoder = msgspec.json.Encoder()
_PLACEHOLDER = _encoder.encode(PLACEHOLDER)
_LINE_SEPARATOR, _PARAGRAPH_SEPARATOR = "\u2028".encode(), "\u2029".encode()


class Template:
    """An event that is encoded once and filled with many texts."""

    __slots__ = ("_parts",)

    def __init__(self, event: bytes) -> None:
        """``event`` is a frame in which at least one string is PLACEHOLDER."""
        self._parts = event.split(_PLACEHOLDER)
        assert len(self._parts) > 1

    def fill(self, text: str) -> bytes:
        """The bytes that ``frame`` gives for an event with this text."""
        return _one_line(_encoder.encode(text)).join(self._parts)


def frame(chunk: msgspec.Struct) -> bytes:
    return b"data: " + _one_line(_encoder.encode(chunk)) + b"\n\n"


def named_frame(name: str, event: msgspec.Struct) -> bytes:
    """One event with a name, for APIs whose events have types."""
    return b"event: " + name.encode() + b"\n" + frame(event)


def _one_line(data: bytes) -> bytes:
    """Escape the two characters that JSON allows but some clients treat as line ends."""
    if b"\xe2\x80" not in data:
        return data
    return data.replace(_LINE_SEPARATOR, b"\\u2028").replace(_PARAGRAPH_SEPARATOR, b"\\u2029")
