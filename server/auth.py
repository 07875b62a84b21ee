"""API keys: a guard that runs before the body is read. ``opt={"public": True}`` exempts a route."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from server.errors import APIError

Guard = Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], None]


def api_key_guard(api_keys: Iterable[str]) -> Guard:
    """Reject requests without one of the keys.

    Digests are compared, so the comparison's time reveals nothing and keys may be any bytes.
    """
    accepted = {_digest(key.encode()) for key in api_keys}

    def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        # Browsers send CORS preflights without a key.
        is_preflight = connection.scope.get("method") == "OPTIONS"
        if is_preflight or handler.opt.get("public"):
            return
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if not token:
            raise _unauthorized("You did not provide an API key.", code=None)
        if scheme.lower() != "bearer" or _digest(token.strip().encode("latin-1")) not in accepted:
            raise _unauthorized("Incorrect API key provided.", code="invalid_api_key")

    return guard


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _unauthorized(message: str, *, code: str | None) -> APIError:
    return APIError(401, message, code=code, headers={"www-authenticate": "Bearer"})
