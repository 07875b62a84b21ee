"""with_admission: the layer that decides about requests."""

from __future__ import annotations

from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision
from server.http.apis import path_at
from server.http.errors import send_error
from server.net.refusal import BUSY, BUSY_KEY
from server.observe.trace import trace_of
from server.tenants.tenant import SCOPE_KEY as TENANT_KEY
from server.tenants.tenant import tenant_at


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
