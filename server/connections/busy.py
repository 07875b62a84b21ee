"""busy_app: what connections above the limit are answered."""

from __future__ import annotations

from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import Unavailable
from server.connections import refusal
from server.errors import send_error, to_api_error
from server.request_id import with_request_id
from server.tenants.keys import Keys
from server.tenants.middleware import with_tenant

PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz"})
"""Paths that the application answers all the same."""


def busy_app(app: ASGIApp) -> ASGIApp:
    """Answer 503 and end the connection. Probes of health go to ``app``.

    Keys are not looked up: in the access log, the tenant is the connection's address.
    """
    refuse = with_tenant(with_request_id(_refuse), Keys())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] in PROBES else refuse)(scope, receive, send)

    return answer


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    error = to_api_error(Unavailable(refusal.BUSY.message))
    error.headers["connection"] = "close"
    await send_error(scope, send, error)
