"""The middleware that refuses requests without a valid API key, before any work."""

from __future__ import annotations

from collections.abc import Callable

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from server.http.errors import APIError
from server.tenants.keys import KEY_HEADERS, Keys
from server.tenants.tenant import tenant_of


def key_guard(keys: Keys) -> Callable[[ASGIApp], ASGIApp]:
    """Refuse requests without one of the keys, if there are any.

    A middleware of the application: it runs before those of a route, which take budgets. A
    guard of Litestar would run after them. ``opt={"public": True}`` exempts a route.
    """

    def middleware(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if keys and scope["type"] == ScopeType.HTTP and not _is_allowed(scope):
                raise _refusal(scope)
            await app(scope, receive, send)

        return wrapped

    return middleware


def _is_allowed(scope: HTTPScope) -> bool:
    # Browsers send CORS preflights without a key.
    is_preflight = scope["method"] == HttpMethod.OPTIONS
    is_public = bool(scope["route_handler"].opt.get("public"))
    return is_preflight or is_public or tenant_of(scope).has_key


def _refusal(scope: HTTPScope) -> APIError:
    if any(
        value.partition(b" ")[2] if name == b"authorization" else value
        for name, value in scope["headers"]
        if name in KEY_HEADERS
    ):
        return _unauthorized("Incorrect API key provided.", code="invalid_api_key")
    return _unauthorized("You did not provide an API key.", code=None)


def _unauthorized(message: str, *, code: str | None) -> APIError:
    return APIError(401, message, code=code, headers={"www-authenticate": "Bearer"})
