"""with_ticket: the middleware that runs routes with their admission tickets."""

from __future__ import annotations

from collections.abc import Callable

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.admission.deadline import Watched, run_until_deadline
from server.generation.serving import Serving
from server.http.apis import path_at
from server.http.errors import send_error
from server.observe.trace import trace_of

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap each route: it runs with the ticket that was taken for it, or answers why there is none.

    Which routes take tickets is in the table of ``server.http.apis``.

    A client that disconnects cancels the route wherever it is, and with it what it waits for. A
    deadline ends it.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not _takes_ticket(scope):
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


def _takes_ticket(scope: HTTPScope) -> bool:
    return scope["method"] == HttpMethod.POST and path_at(scope["path_template"]).has_ticket


def _with_headers(send: Send, headers: Callable[[], dict[str, str]]) -> Send:
    """Wrap ``send``: the response gets the headers as of its start."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers().items()]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return wrapped
