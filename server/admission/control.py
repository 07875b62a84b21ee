"""The one decision about a request, from its head alone, and with_admission, the layer for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import QueueFull, Unavailable
from server.admission.admission import Admission, Ticket
from server.admission.deadline import seconds_given
from server.http.apis import path_at
from server.http.body import declared_size
from server.http.errors import APIError, send_error, to_api_error
from server.http.origins import HostPolicy
from server.net.refusal import BUSY_KEY, busy
from server.observe.trace import trace_of
from server.settings.settings import Settings
from server.tenants.tenant import SCOPE_KEY as TENANT_KEY
from server.tenants.tenant import Keys, Tenant, tenant_at

SCOPE_KEY = "admission"
"""Key in the ``state`` of an ASGI scope: the Decision about the request."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The tenant, and at most one of: what forbids the request, a ticket, why there is none.

    A request for a route without tickets has neither. Who gets the ticket leaves it (``with``).
    """

    tenant: Tenant
    forbidden: APIError | None = None
    ticket: Ticket | None = None
    error: APIError | None = None


def decide_by_budgets(
    settings: Settings, keys: Keys, admission: Admission, check_accepting: Callable[[], None]
) -> Callable[[Any], Decision]:
    """A function that decides by host, origin, tenant, rates and budgets, in this order.

    It is called on the event loop with an HTTP scope, and takes a ticket for a path that has one in
    the table of APIs. ``check_accepting`` raises Unavailable if the server takes no new work.
    """
    policy, rates = HostPolicy.of(settings), admission.rates

    def decide(scope: Any) -> Decision:
        headers = scope["headers"]
        tenant = keys.tenant(headers, scope.get("client"))
        if forbidden := policy.refusal(headers, scope["http_version"]):
            return Decision(tenant, forbidden=forbidden)
        has_ticket = scope["method"] == "POST" and path_at(scope["path"]).has_ticket
        if not has_ticket or (keys and not tenant.has_key):
            return Decision(tenant)
        try:
            check_accepting()
            seconds = seconds_given(headers, settings.request_timeout)
            if rates:
                rates.admit(tenant.name)
            declared = declared_size(headers)
            if declared is not None:  # a larger body is a 413, not a 429
                declared = min(declared, settings.max_body_size)
            ticket = Ticket(admission, tenant, declared_bytes=declared, seconds=seconds)
            return Decision(tenant, ticket=ticket)
        except (APIError, QueueFull, Unavailable) as refusal:
            error = to_api_error(refusal).with_traceback(None)  # its frames have the scope
            if rates:
                error.headers |= rates.headers(tenant.name)
            return Decision(tenant, error=error)

    return decide


def ticket_of(scope: Any) -> Ticket:
    """The ticket of an HTTP scope, on a route that takes one."""
    decision: Decision = scope["state"][SCOPE_KEY]
    assert decision.ticket is not None
    return decision.ticket


def with_admission(app: Litestar) -> ASGIApp:
    """Wrap ``app``. A ticket is held until ``app`` returns."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        state, trace = scope["state"], trace_of(scope)
        if BUSY_KEY in state and not path_at(scope["path"]).is_probe:
            trace.key = tenant_at(scope["client"]).name  # keys are not looked up
            await send_error(scope, send, busy())
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
                await decision.ticket.admission.pacing.begin(decision.tenant.name)
                await app(scope, receive, send)
            del state[SCOPE_KEY]  # what anyio keeps of a cancelled task may refer to the scope

    return wrapped
