"""ASGI middleware: HEAD is answered like GET, without the body."""

from __future__ import annotations

from collections.abc import Awaitable

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send


def with_head(app: ASGIApp) -> ASGIApp:
    """Wrap ``app``, whose routes need to know nothing of HEAD."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["method"] != HttpMethod.HEAD:
            await app(scope, receive, send)
            return

        def send_head(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body":
                message["body"] = b""
            return send(message)

        # A copy: the server below must go on to see HEAD.
        await app({**scope, "method": HttpMethod.GET}, receive, send_head)

    return wrapped
