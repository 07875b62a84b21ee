"""decide_by_caller: what the router decides about a request from its head."""

from __future__ import annotations

from collections.abc import Callable

from server.admission.control import Decision
from server.http.origins import HostPolicy
from server.net.refusal import Head
from server.settings.settings import Settings
from server.tenants.keys import Keys


def decide_by_caller(settings: Settings, keys: Keys) -> Callable[[Head], Decision]:
    """Who asks, and hosts and origins. ``with_traffic`` and the servers behind do the rest."""
    policy = HostPolicy.of(settings)

    def decide(head: Head) -> Decision:
        tenant = keys.tenant(head.headers, head.client)
        return Decision(tenant, forbidden=policy.refusal(head.headers, head.version))

    return decide
