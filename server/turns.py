"""ASGI middleware: requests that need much work begin a few in each turn of the event loop."""

from __future__ import annotations

from litestar import Litestar
from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from server.controllers.ticketed import ticketed_paths
from server.serving import Serving
from server.tenants.tenant import tenant_of


def with_turns(inner: ASGIApp, app: Litestar) -> ASGIApp:
    """Wrap ``inner``, inside ``with_tenant``. Requests for other routes than those of tickets pass.

    ``app`` is the application that ``inner`` ends in.
    """
    paths = ticketed_paths(app)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == ScopeType.HTTP
            and scope["method"] == HttpMethod.POST
            and scope["path"] in paths
        ):
            serving: Serving = app.state.serving
            await serving.turns.begin(tenant_of(scope).name)
        await inner(scope, receive, send)

    return wrapped
