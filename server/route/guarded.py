"""with_traffic: the middleware of every route that passes requests on."""

from __future__ import annotations

from litestar.types import ASGIApp, Receive, Scope, Send

from server.admission.watched import Watched, declared_size
from server.errors import body_too_large
from server.route.routing import Routing
from server.tenants.tenant import tenant_of


def with_traffic(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it holds its body's bytes, and a client that disconnects cancels it.

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
        held, most = 0, routing.settings.max_body_size

        def hold(size: int) -> None:
            nonlocal held
            if held + size > most:
                raise body_too_large()
            if size:
                traffic.body_bytes.take(tenant, size)
                held += size

        declared = declared_size(scope)
        if declared is not None:
            hold(declared)
        watched = Watched(receive, on_body=_nothing if declared is not None else hold)
        try:
            with traffic.opened(watched):
                await watched.run(app, scope, send)
        finally:
            traffic.body_bytes.give_back(tenant, held)

    return wrapped


def _nothing(_size: int) -> None:
    """The body's bytes were counted with its Content-Length, which the parser enforces."""
