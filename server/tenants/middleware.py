"""ASGI middleware: puts the Tenant into the scope before anything else sees the request."""

from __future__ import annotations

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from server.tenants.address import tenant_at
from server.tenants.keys import KEY_HEADERS, Keys, token_in
from server.tenants.tenant import SCOPE_KEY, Tenant


def with_tenant(app: ASGIApp, keys: Keys) -> ASGIApp:
    """Wrap ``app``. ``tenant_of(scope)`` then returns the tenant.

    A missing or wrong key is refused later, by ``key_guard``: only after routing is it known
    whether the route needs one.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            scope.setdefault("state", {})[SCOPE_KEY] = _tenant(scope, keys)
        await app(scope, receive, send)

    return wrapped


def _tenant(scope: Scope, keys: Keys) -> Tenant:
    if keys:
        seen: set[bytes] = set()
        for name, value in scope["headers"]:
            if name in KEY_HEADERS and name not in seen:  # the first of each counts
                seen.add(name)
                tenant = keys.find(token_in(name, value))
                if tenant is not None:
                    return tenant
    return tenant_at(scope.get("client"))
