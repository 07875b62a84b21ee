"""Head: what is known of a request before its body, and what may be decided from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Head:
    """Names of headers are in lower case. ``client`` is None on a Unix socket."""

    method: bytes
    url: bytes
    headers: Headers
    client: tuple[str, int] | None
    version: str = "1.1"


class EarlyAnswer(Protocol):
    """Makes a whole response; ``is_last`` says that the connection ends after it."""

    def __call__(self, *, is_last: bool) -> bytes: ...


Admit: TypeAlias = Callable[[Head], dict[str, Any] | EarlyAnswer]
"""Answers a request, or returns what the application gets in the ``state`` of its ASGI scope."""


def admit_all(_head: Head) -> dict[str, Any]:
    """Leave everything to the application."""
    return {}


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
