"""The guard that refuses requests without a valid API key, before the body is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from server.errors import APIError
from server.tenants.keys import Keys
from server.tenants.tenant import tenant_of

Guard = Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], None]


def key_guard(keys: Keys) -> Guard:
    """Refuse requests without one of the keys, if there are any.

    ``opt={"public": True}`` exempts a route.
    """

    def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        # Browsers send CORS preflights without a key.
        is_preflight = connection.scope.get("method") == "OPTIONS"
        if not keys or is_preflight or handler.opt.get("public"):
            return
        if tenant_of(connection.scope).has_key:
            return
        _, _, token = connection.headers.get("authorization", "").partition(" ")
        if not token:
            raise _unauthorized("You did not provide an API key.", code=None)
        raise _unauthorized("Incorrect API key provided.", code="invalid_api_key")

    return guard


def _unauthorized(message: str, *, code: str | None) -> APIError:
    return APIError(401, message, code=code, headers={"www-authenticate": "Bearer"})
