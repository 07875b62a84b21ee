"""AdmissionControl: the one decision about a request, from its head alone."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from core.contract.errors import QueueFull, Unavailable
from server.admission.admission import Admission, Ticket
from server.admission.deadline import seconds_given
from server.http.body import declared_size
from server.http.errors import APIError, to_api_error
from server.http.origins import HostPolicy
from server.settings.settings import Settings
from server.tenants.keys import Keys
from server.tenants.tenant import Tenant

SCOPE_KEY = "admission"
"""Key in the ``state`` of an ASGI scope: the Decision about the request."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who asks, and at most one of: what forbids it, a ticket, and why there is no ticket.

    A request for a route without tickets has neither. Who gets the ticket leaves it (``with``).
    """

    tenant: Tenant
    forbidden: APIError | None = None
    ticket: Ticket | None = None
    error: APIError | None = None


class AdmissionControl:
    """Looks at the host, the origin, the tenant, rates and budgets, in this order.

    Event loop only.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        paths: Container[str],
        admission: Admission,
        check_accepting: Callable[[], None],
    ) -> None:
        """``paths`` are those of the routes that take tickets.

        ``check_accepting`` raises Unavailable if the server takes no new work.
        """
        self._settings = settings
        self._policy = HostPolicy.of(settings)
        self._keys = keys
        self._paths = paths
        self._admission = admission
        self._check_accepting = check_accepting

    def decide(self, scope: Any) -> Decision:
        """Decide about an HTTP scope. A ticket is taken for it if its route needs one."""
        headers = scope["headers"]
        tenant = self._keys.tenant(headers, scope.get("client"))
        if forbidden := self._policy.refusal(headers, scope["http_version"]):
            return Decision(tenant, forbidden=forbidden)
        has_ticket = scope["method"] == "POST" and scope["path"] in self._paths
        if not has_ticket or (self._keys and not tenant.has_key):
            return Decision(tenant)
        try:
            return Decision(tenant, ticket=self._ticket(tenant, headers))
        except QueueFull as full:
            error, rates = to_api_error(full), self._admission.rates
            error.headers |= rates.headers(tenant.name) if rates else {}
            return Decision(tenant, error=error)
        except (APIError, Unavailable) as refusal:
            error = to_api_error(refusal).with_traceback(None)  # its frames have the scope
            return Decision(tenant, error=error)

    def _ticket(self, tenant: Tenant, headers: list[tuple[bytes, bytes]]) -> Ticket:
        self._check_accepting()
        seconds = seconds_given(headers, self._settings.request_timeout)
        if self._admission.rates:
            self._admission.rates.admit(tenant.name)
        declared = declared_size(headers)
        if declared is not None:  # a larger body is a 413, not a 429
            declared = min(declared, self._settings.max_body_size)
        return Ticket(self._admission, tenant, declared_bytes=declared, seconds=seconds)


def ticket_of(scope: Any) -> Ticket:
    """The ticket of an HTTP scope. Raises KeyError on a route that takes none."""
    decision: Decision = scope["state"][SCOPE_KEY]
    if decision.ticket is None:
        raise KeyError(SCOPE_KEY)
    return decision.ticket
