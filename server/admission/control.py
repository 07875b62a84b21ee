"""AdmissionControl: the one decision about a request, from its head alone."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

from core.contract.errors import QueueFull, Unavailable
from server.admission.admission import Admission
from server.admission.deadline import seconds_given
from server.admission.decision import Asked, Decision, Headers
from server.admission.ticket import Ticket
from server.http.body import declared_size
from server.http.errors import APIError, to_api_error
from server.http.origins import HostPolicy
from server.settings.settings import Settings
from server.tenants.keys import Keys
from server.tenants.tenant import Tenant


class Admitting(Protocol):
    """What is asked for a ticket."""

    @property
    def admission(self) -> Admission:
        """The budgets."""

    def check_accepting(self) -> None:
        """Raise Unavailable if the server takes no new work."""


class AdmissionControl:
    """Looks at the host, the origin, the tenant, rates and budgets, in this order.

    Event loop only.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        paths: Container[str],
        admitting: Callable[[], Admitting],
    ) -> None:
        """``paths`` are those that take tickets. ``admitting`` is called for requests."""
        self._settings = settings
        self._policy = HostPolicy.of(settings)
        self._keys = keys
        self._paths = paths
        self._admitting = admitting

    def decide(self, asked: Asked) -> Decision:
        """Decide about a request. A ticket is taken for it if its route needs one."""
        tenant = self._keys.tenant(asked.headers, asked.client)
        if forbidden := self._policy.refusal(asked.headers, asked.version):
            return Decision(tenant, forbidden=forbidden)
        has_ticket = asked.method == "POST" and asked.path in self._paths
        if not has_ticket or (self._keys and not tenant.has_key):
            return Decision(tenant)
        try:
            return Decision(tenant, ticket=self._ticket(tenant, asked.headers))
        except QueueFull as full:
            rates = self._admitting().admission.rates
            error = to_api_error(full)
            error.headers |= rates.headers(tenant.name) if rates else {}
            return Decision(tenant, error=error)
        except (APIError, Unavailable) as refusal:  # no name for the error: it has this frame
            return Decision(tenant, error=to_api_error(refusal))

    def _ticket(self, tenant: Tenant, headers: Headers) -> Ticket:
        admitting, settings = self._admitting(), self._settings
        admitting.check_accepting()
        seconds = seconds_given(headers, settings.request_timeout)
        if admitting.admission.rates:
            admitting.admission.rates.admit(tenant.name)
        declared = declared_size(headers)
        if declared is not None:  # a larger body is a 413, not a 429
            declared = min(declared, settings.max_body_size)
        return Ticket(admitting.admission, tenant, declared_bytes=declared, seconds=seconds)
