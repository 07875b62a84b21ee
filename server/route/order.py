"""Order: a call, its model, and who wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from server.errors import APIError
from server.route.call import Call
from server.route.held_body import HeldBody
from server.route.model import Model
from server.route.upstream import Upstream


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

    call: Call
    body: HeldBody
    model: Model
    tenant: str
    request_id: str
    key: bytes = b""
    """Names the conversation, if there are several servers to choose from."""
    preferred: Upstream | None = None
    keep_alive_interval: float = 0.0
    on_first: Callable[[bytes, Upstream], None] | None = None
    """Gets the first piece of a successful answer's body."""
