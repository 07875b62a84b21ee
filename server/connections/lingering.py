"""LingeringTransport: what an answer writes to while its request's body still arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LingeringTransport:
    """The part of a transport that uvicorn's answers use; ``close`` calls ``linger`` instead."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = linger
