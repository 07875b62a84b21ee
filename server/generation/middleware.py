"""with_ticket: the layer around routes that do much work."""

from __future__ import annotations

from collections.abc import Callable

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.admission.deadline import Watched, deadline
from server.generation.serving import Serving
from server.http.errors import send_error
from server.observe.trace import trace_of


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap each route: it runs with the ticket that was taken for it, or answers why there is none.

    A route without tickets runs as it is. A client that disconnects cancels a route with one, and
    with it what it waits for. A deadline ends it.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        decision: Decision = scope["state"][SCOPE_KEY]
        ticket, error = decision.ticket, decision.error
        if ticket is None and error is None:
            await app(scope, receive, send)
            return
        serving: Serving = scope["litestar_app"].state.serving
        trace = trace_of(scope)
        serving.records.begin(trace)
        if error is not None:  # raised, it would cost twice as much
            await send_error(scope, send, error)
            return
        assert ticket is not None
        rates = serving.admission.rates
        if rates:
            send = _with_headers(send, lambda: rates.headers(decision.tenant.name))
        ticket.trace = trace
        watched = Watched(receive, on_body=ticket.body_arrived)
        trace.enter("upload")
        serving.trimmer.request_started()
        try:
            with deadline(ticket, watched):
                await watched.run(app, scope, send)
        finally:
            serving.trimmer.request_ended()
            trace.has_left = watched.was_left

    return wrapped


def _with_headers(send: Send, headers: Callable[[], dict[str, str]]) -> Send:
    """Wrap ``send``: the response gets the headers as of its start."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers().items()]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return wrapped
