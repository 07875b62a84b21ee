"""with_ticket: the middleware of every route that generates or tokenizes."""

from __future__ import annotations

from collections.abc import Callable

from litestar import Litestar
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.admission.deadline import Watched, run_until_deadline
from server.generation.serving import Serving
from server.http.errors import send_error
from server.observe.trace import trace_of

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it runs with the ticket that was taken for it, or answers why there is none.

    A client that disconnects cancels the route wherever it is, and with it what it waits for. A
    deadline ends it.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":  # type: ignore[typeddict-item]
            await app(scope, receive, send)
            return
        serving: Serving = scope["litestar_app"].state.serving
        trace = trace_of(scope)
        trace.path = scope["path_template"]  # a client may write it with more slashes
        serving.records.begin(trace)
        decision: Decision = scope["state"][SCOPE_KEY]
        if decision.error is not None:  # raised, it would cost twice as much
            await send_error(scope, send, decision.error)
            return
        ticket, rates = decision.ticket, serving.admission.rates
        assert ticket is not None
        if rates:
            send = _with_headers(send, lambda: rates.headers(decision.tenant.name))
        ticket.trace = trace
        watched = Watched(receive, on_body=ticket.body_arrived)
        trace.enter("upload")
        serving.trimmer.request_started()
        try:
            if ticket.seconds is None:
                await watched.run(app, scope, send)
            else:
                await run_until_deadline(ticket.seconds, watched, ticket, app, scope, send)
        finally:
            serving.trimmer.request_ended()
            trace.has_left = watched.was_left

    return wrapped


def ticketed_paths(app: Litestar) -> frozenset[str]:
    """The paths of the routes that take tickets. Their method is POST."""
    return frozenset(
        route.path
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        if with_ticket in handler.resolve_middleware()
    )


def _with_headers(send: Send, headers: Callable[[], dict[str, str]]) -> Send:
    """Wrap ``send``: the response gets the headers as of its start."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers().items()]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return wrapped
