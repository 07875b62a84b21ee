"""What answers are written to: in place of a transport, and in place of ``send``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION = "roseinfer.body_writer"
"""Key in the ``extensions`` of an ASGI scope."""


class LingeringTransport:
    """The part of a transport that uvicorn's answers use; ``close`` calls ``linger`` instead."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = linger


class BodyWriter:
    """The body of one response, framed as uvicorn's ``send`` frames it. Event loop only.

    Once the application has sent ``http.response.start``, ``write`` does the same as
    ``http.response.body`` with ``more_body``, if ``is_ready``.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

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


def extensions_of(cycle: RequestResponseCycle) -> dict[str, Any]:
    """The extensions of a scope whose response this cycle sends."""
    return {EXTENSION: BodyWriter(cycle)}


def body_writer(scope: Any) -> BodyWriter | None:
    """The writer of an HTTP scope's response; None under a server that has none."""
    writer: BodyWriter | None = (scope.get("extensions") or {}).get(EXTENSION)
    return writer
