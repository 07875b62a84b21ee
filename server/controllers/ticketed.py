"""with_ticket: the middleware of every route that generates or tokenizes."""

from __future__ import annotations

from litestar.types import ASGIApp, Receive, Scope, Send

from server.admission.ticket import SCOPE_KEY, Ticket
from server.admission.watched import Watched
from server.serving import Serving
from server.tenants.tenant import tenant_of


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it runs with a ticket, which is taken before the body is read.

    A client that disconnects cancels the route wherever it is, and with it what it waits for.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":  # type: ignore[typeddict-item]
            await app(scope, receive, send)
            return
        serving: Serving = scope["litestar_app"].state.serving
        serving.bridge.check_accepting()
        declared = _content_length(scope)
        if declared is not None:  # a larger body is a 413, not a 429
            declared = min(declared, serving.settings.max_body_size)
        with Ticket(serving.admission, tenant_of(scope), declared_bytes=declared) as ticket:
            scope["state"][SCOPE_KEY] = ticket
            watched = Watched(receive, on_body=ticket.body_arrived)
            try:
                await watched.run(app, scope, send)
            finally:
                serving.trimmer.ended(ticket.num_body_bytes)

    return wrapped


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None
