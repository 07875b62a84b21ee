"""with_traffic: the middleware of every route that passes requests on."""

from __future__ import annotations

from litestar.types import ASGIApp, Receive, Scope, Send

from server.admission.watched import Watched
from server.raw_body import declared_size
from server.route.held_body import SCOPE_KEY, HeldBody
from server.route.routing import Routing
from server.tenants.tenant import tenant_of


def with_traffic(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it has a HeldBody, and a client that disconnects cancels it.

    A larger body than allowed is refused before it is read, or while it arrives.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":  # type: ignore[typeddict-item]
            await app(scope, receive, send)
            return
        routing: Routing = scope["litestar_app"].state.routing
        traffic, tenant = routing.traffic, tenant_of(scope).name
        traffic.check_accepting()
        if traffic.rates:
            traffic.rates.admit(tenant)
        body = HeldBody(traffic.body_bytes, tenant, routing.settings.max_body_size)
        scope["state"][SCOPE_KEY] = body
        declared = declared_size(scope["headers"])
        if declared is not None:
            body.take(declared)
        # the parser enforces a Content-Length
        watched = Watched(receive, on_body=None if declared is not None else body.take)
        try:
            with traffic.opened(watched):
                await traffic.pacing.begin(tenant)
                await watched.run(app, scope, send)
        finally:
            body.release()

    return wrapped
