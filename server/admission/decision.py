"""Decision: whether a request is admitted, as the protocol and the ASGI layers pass it on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from server.http.errors import APIError
from server.tenants.tenant import Tenant

if TYPE_CHECKING:
    from server.admission.ticket import Ticket

Headers: TypeAlias = Collection[tuple[bytes, bytes]]

SCOPE_KEY = "admission"
"""Key in the ``state`` of an ASGI scope: the Decision about the request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as it is decided about. ``path`` is as the router spells it."""

    method: str
    path: str
    headers: Headers
    client: tuple[str, int] | None
    version: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Who asks, and at most one of: what forbids it, a ticket, and why there is no ticket.

    A request for a route without tickets has neither. Who gets the ticket leaves it (``with``).
    """

    tenant: Tenant
    forbidden: APIError | None = None
    ticket: Ticket | None = None
    error: APIError | None = None


Decide: TypeAlias = Callable[["Asked"], Decision]
"""What is asked to the decision."""


def ticket_of(scope: Any) -> Ticket:
    """The ticket of an HTTP scope. Raises KeyError on a route that takes none."""
    decision: Decision = scope["state"][SCOPE_KEY]
    if decision.ticket is None:
        raise KeyError(SCOPE_KEY)
    return decision.ticket
