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

from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.http.apis import path_at
from server.http.errors import send_error
from server.http.paths import with_paths
from server.net.refusal import BUSY, BUSY_KEY
from server.observe.access_log import with_trace
from server.observe.trace import trace_of
from server.tenants.tenant import SCOPE_KEY as TENANT_KEY
from server.tenants.tenant import tenant_at


def with_edge(app: Litestar, *, clock: Callable[[], float] = time.perf_counter) -> ASGIApp:
    """Wrap the application of a ``create_app`` in the first three layers.

    ``app.state`` has the ``short_names`` of paths, and in its lifespan what may ``decide``, and the
    ``stalls``. ``clock`` times the request; the engine's own times are of ``time.perf_counter``.
    """
    traced = with_trace(with_admission(app), lambda: app.state.stalls, clock)
    return with_paths(traced, app.state.short_names)


def with_admission(app: Litestar) -> ASGIApp:
    """Wrap ``app``. A ticket is held until ``app`` returns."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        state, trace = scope["state"], trace_of(scope)
        if BUSY_KEY in state and not path_at(scope["path"]).is_probe:
            trace.key = tenant_at(scope["client"]).name  # keys are not looked up
            await send_error(scope, send, BUSY())
            return
        decision: Decision = app.state.decide(scope)
        state[SCOPE_KEY], state[TENANT_KEY] = decision, decision.tenant
        trace.key = decision.tenant.name
        if decision.forbidden is not None:
            await send_error(scope, send, decision.forbidden)
        elif decision.ticket is None:
            await app(scope, receive, send)
        else:
            with decision.ticket:
                await decision.ticket.begin()
                await app(scope, receive, send)
            del state[SCOPE_KEY]  # what anyio keeps of a cancelled task may refer to the scope

    return wrapped
