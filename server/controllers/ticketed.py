"""with_ticket: the middleware of every route that generates or tokenizes."""

from __future__ import annotations

from collections.abc import Callable

from litestar import Litestar
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from core.contract.errors import QueueFull
from server.admission.deadline import run_until_deadline, seconds_given
from server.admission.ticket import SCOPE_KEY, Ticket
from server.admission.watched import Watched
from server.errors import send_error, to_api_error
from server.raw_body import declared_size
from server.records.trace import trace_of
from server.serving import Serving
from server.short_paths import short_forms
from server.tenants.tenant import tenant_of

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it runs with a ticket, which is taken before the body is read.

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
        serving.bridge.check_accepting()
        declared = declared_size(scope)
        if declared is not None:  # a larger body is a 413, not a 429
            declared = min(declared, serving.settings.max_body_size)
        tenant, admission = tenant_of(scope), serving.admission
        seconds = seconds_given(scope["headers"], serving.settings.request_timeout)
        if admission.rates:
            admission.rates.admit(tenant.name)
            send = _with_headers(send, lambda: admission.rates.headers(tenant.name))
        try:
            ticket = Ticket(admission, tenant, declared_bytes=declared, trace=trace)
        except QueueFull as full:  # raised, it would cost twice as much
            await send_error(scope, send, to_api_error(full))
            return
        with ticket:
            scope["state"][SCOPE_KEY] = ticket
            watched = Watched(receive, on_body=ticket.body_arrived)
            trace.enter("upload")
            serving.trimmer.request_started()
            try:
                if seconds is None:
                    await watched.run(app, scope, send)
                else:
                    await run_until_deadline(seconds, watched, ticket, app, scope, send)
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


def ticketed_urls(app: Litestar) -> dict[bytes, str]:
    """Where clients find these routes, short forms included, with the paths of the routes."""
    paths = ticketed_paths(app)
    forms = {path: path for path in paths} | short_forms(paths, app)
    return {form.encode(): path for form, path in forms.items()}


def _with_headers(send: Send, headers: Callable[[], dict[str, str]]) -> Send:
    """Wrap ``send``: the response gets the headers as of its start."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers().items()]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return wrapped
