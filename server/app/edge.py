"""The five ASGI layers of our own between the protocol and a handler, from the outside in.

1. ``with_paths``: a path as the router spells it, with ``/v1`` if that is missing; HEAD as GET.
2. ``with_trace``: the request's id, its trace and line in the access log, the stall detector.
3. ``with_admission``: the decision about host, origin, tenant, rates and budgets, with the ticket.
   It is made from the head, before the body is read.
4. ``key_guard``: a key, on routes that need one. It runs after routing, as a middleware of the
   application.
5. ``with_ticket``, or ``with_traffic`` in the router: what the client's leaving and the deadline
   end, on routes that do much work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from litestar import Litestar
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.admission.deadline import Watched, run_until_deadline
from server.admission.middleware import with_admission
from server.http.errors import send_error
from server.http.paths import with_paths
from server.observe.access_log import with_trace
from server.observe.trace import trace_of

if TYPE_CHECKING:  # `roseinfer route` has the same front, and no engine
    from server.generation.serving import Serving


def with_edge(app: Litestar, *, clock: Callable[[], float] = time.perf_counter) -> ASGIApp:
    """Wrap the application of a ``create_app`` in the first three layers.

    ``app.state`` has the ``short_names`` of paths, and in its lifespan what may ``decide``, and the
    ``stalls``. ``clock`` times the request; the engine's own times are of ``time.perf_counter``.
    """
    traced = with_trace(with_admission(app), lambda: app.state.stalls, clock)
    return with_paths(traced, app.state.short_names)


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
            if ticket.seconds is None:
                await watched.run(app, scope, send)
            else:
                await run_until_deadline(ticket.seconds, watched, ticket, app, scope, send)
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
