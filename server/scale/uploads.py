"""Uploads: the bodies that arrive at one of Serve's proxies."""

from __future__ import annotations

import time
from typing import Any

from litestar.types import Receive, Scope

from core.contract.errors import QueueFull
from server.admission.budget import Budget
from server.errors import body_too_large, to_api_error
from server.raw_body import declared_size
from server.tenants.address import tenant_at

HELD_BODIES = 4
"""Bodies of the largest size that one proxy may hold while they arrive.

One address may hold half of that, and others have a reserve: it takes three addresses to shut out
the others. Nothing ends an upload that stops, so they can do that for as long as they like. Behind
a proxy all clients are one address.
"""


class Uploads:
    """Event loop of the proxy only."""

    def __init__(self, max_body_size: int) -> None:
        self._max_body_size = max_body_size
        self.bodies = Budget(
            HELD_BODIES * max_body_size,
            full="Too many large requests arrive.",
            never="",
            clock=time.monotonic,
            most_each=HELD_BODIES // 2 * max_body_size,
        )

    async def body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client leaves. Raises APIError for one without room."""
        if (declared_size(scope["headers"]) or 0) > self._max_body_size:
            raise body_too_large()
        tenant = tenant_at(scope.get("client")).name
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message: Any = await receive()
                if message["type"] != "http.request":
                    return None
                piece = message.get("body", b"")
                if size + len(piece) > self._max_body_size:
                    raise body_too_large()
                self.bodies.take(tenant, len(piece))
                size += len(piece)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
        except QueueFull as refusal:
            raise to_api_error(refusal) from None
        finally:
            self.bodies.give_back(tenant, size)
