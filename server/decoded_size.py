"""decoded_size: the most memory that the objects of a JSON body take, before there are any."""

from __future__ import annotations

BASE = 4096
"""Bytes of a request without its fields' values."""

CONTAINER = 200
"""Bytes of a list or object, with one value that no comma counts."""

KEY = 112
"""Bytes of a key with its part of a table, which may have grown just now."""

VALUE = 80
"""Bytes of a short text or a number, and of its place in a list."""

WIDEST = 4
"""Bytes of a character, if a text has one outside of ASCII."""


def decoded_size(body: bytes) -> int:
    """Bytes that the body's objects take at most. Punctuation inside of texts counts too."""
    width = 1 if body.isascii() and b"\\u" not in body else WIDEST
    num_containers = body.count(b"[") + body.count(b"{")
    num_keys = min(body.count(b":"), body.count(b'"') // 2)
    return (
        BASE
        + width * len(body)
        + CONTAINER * num_containers
        + KEY * num_keys
        + VALUE * body.count(b",")
    )
