"""busy_app: what connections above the limit are answered."""

from __future__ import annotations

from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import Unavailable
from server.errors import encode_error, to_api_error
from server.request_id import with_request_id

PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz"})
"""Paths that the application answers all the same."""


def busy_app(app: ASGIApp) -> ASGIApp:
    """Answer 503 and end the connection. Probes of health go to ``app``."""
    refuse = with_request_id(_refuse)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] in PROBES else refuse)(scope, receive, send)

    return answer


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    error = to_api_error(Unavailable("All connections of the server are in use."))
    body = encode_error(error.error)
    headers: dict[str, Any] = {
        "content-type": "application/json",
        "content-length": len(body),
        "connection": "close",
        **error.headers,
    }
    encoded = [(name.encode(), str(value).encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
