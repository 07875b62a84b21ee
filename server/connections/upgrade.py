"""Heads of requests that ask for another protocol than HTTP/1.1."""

from __future__ import annotations

from collections.abc import Iterable


def head_without_upgrade(
    method: bytes, url: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The same head without the wish for another protocol.

    RFC 9110, section 7.8: a server may ignore the wish. Clients that prefer HTTP/2
    (``Upgrade: h2c``) express it together with a whole request.
    """
    lines = [b"%s %s HTTP/%s" % (method, url, version)]
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            kept = b", ".join(token for token in tokens if token.lower() != b"upgrade")
            lines.append(b"connection: %s" % kept)
        elif name != b"upgrade":
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
