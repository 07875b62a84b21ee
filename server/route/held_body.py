"""HeldBody: a request's body, from its first byte until a server has it."""

from __future__ import annotations

from codecs import BOM_UTF8
from functools import partial
from typing import Any

from litestar import Request

from server.admission.budget import Budget
from server.content_coding import coding_of, plain
from server.errors import body_too_large
from server.raw_body import whole_body

SCOPE_KEY = "held_body"
"""Key in the ``state`` of an ASGI scope."""


class HeldBody:
    """The bytes of one body and their part of the budget. Event loop only."""

    def __init__(self, budget: Budget, tenant: str, most: int) -> None:
        """``most`` is the size of the largest body."""
        self.data = b""
        """The whole body, once it was read; empty after ``release``."""
        self._budget = budget
        self._tenant = tenant
        self._most = most
        self._size = 0

    def take(self, size: int) -> None:
        """Count further bytes. Raises QueueFull, or APIError for more than the largest body."""
        if self._size + size > self._most:
            raise body_too_large()
        if size:
            self._budget.take(self._tenant, size)
            self._size += size

    async def read(self, request: Request[Any, Any, Any]) -> bytes:
        """Read the whole body, without its coding and byte order mark. Raises APIError."""
        coding = coding_of(request.headers)
        body = await whole_body(partial(_read, request))
        if coding is not None:
            coded_size = len(body)
            body = await plain(body, coding, self._most)
            self.take(max(len(body) - coded_size, 0))
        self.data = body.removeprefix(BOM_UTF8)
        return self.data

    def release(self) -> None:
        """Forget the bytes and give their part of the budget back. Idempotent."""
        self.data = b""
        size, self._size = self._size, 0
        self._budget.give_back(self._tenant, size)


async def _read(request: Request[Any, Any, Any]) -> bytes:
    """The body. ``request.body`` would keep it until the answer has ended."""
    return b"".join([piece async for piece in request.stream()])
