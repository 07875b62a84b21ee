"""Order: a call, its model, and who wants it.

HeldBody: a request's body, from its first byte until a server has it.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from litestar import Request

from server.admission.budget import Budget
from server.http.body import coding_of, plain, whole_body
from server.http.errors import APIError, body_too_large
from server.router.upstreams.call import UpstreamRequest
from server.router.upstreams.model import RoutedModel
from server.router.upstreams.upstream import Upstream

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


class NoServer(APIError):
    """No server has seen the call."""

    @classmethod
    def of(cls, error: APIError) -> Self:
        """The same error."""
        shown = error.error
        return cls(
            error.status, shown.message, type_=shown.type, code=shown.code, headers=error.headers
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A call with its body, its model, and who wants it."""

    call: UpstreamRequest
    body: HeldBody
    model: RoutedModel
    tenant: str
    request_id: str
    key: bytes = b""
    """Names the conversation, if there are several servers to choose from."""
    preferred: Upstream | None = None
    keep_alive_interval: float = 0.0
    on_first: Callable[[bytes, Upstream], None] | None = None
    """Gets the first piece of a successful answer's body."""
