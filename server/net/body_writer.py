"""BodyWriter: writes answers to a connection in place of ``send``."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION = "roseinfer.body_writer"
"""Key in the ``extensions`` of an ASGI scope."""


class BodyWriter:
    """The body of one response, framed as uvicorn's ``send`` frames it. Event loop only.

    Once the application has sent ``http.response.start``, ``write`` does the same as
    ``http.response.body`` with ``more_body``, if ``is_ready``.
    """

    __slots__ = ("_cycle", "_ends_with_connection")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._ends_with_connection = False  # neither its size nor chunks say where the body ends

    @property
    def is_ready(self) -> bool:
        """Whether a write need not wait for the client. False: only ``send`` may be used now."""
        cycle = self._cycle
        return not (
            cycle.flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
            or not cycle.chunked_encoding
        )

    def write(self, data: bytes) -> None:
        """Write a piece of the body that is not empty."""
        assert data
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def send(self, message: Any) -> Awaitable[None]:
        """Send as the cycle does, with the end of the connection as it has to be.

        An answer in front of the end of the request's body says that the connection ends after it:
        the rest of the body would be read as the next request. The protocol ends it, not the cycle,
        so that the client can read the answer. HTTP/1.0 has no chunks (RFC 9112, sections 9.3 and
        6.1).
        """
        cycle = self._cycle
        if message["type"] == "http.response.start":
            if cycle.more_body:
                cycle.keep_alive = False
            names = {name.lower() for name, _ in message.get("headers", ())}
            if cycle.scope["http_version"] == "1.0" and b"content-length" not in names:
                self._ends_with_connection, cycle.chunked_encoding = True, False
        else:
            if cycle.more_body:
                cycle.keep_alive = True
            if self._ends_with_connection:
                cycle.expected_content_length = len(message.get("body", b""))
        return cycle.send(message)


def with_writer(app: Any) -> Any:
    """Wrap an ASGI application: the body writer of its scope sends its messages."""

    async def wrapped(scope: Any, receive: Any, _send: Any) -> None:
        await app(scope, receive, scope["extensions"][EXTENSION].send)

    return wrapped


def body_writer(scope: Any) -> BodyWriter | None:
    """The writer of an HTTP scope's response; None under a server that has none."""
    writer: BodyWriter | None = (scope.get("extensions") or {}).get(EXTENSION)
    return writer
