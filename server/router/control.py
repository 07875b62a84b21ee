"""decide_by_caller: what the router decides about a request from its head."""

from __future__ import annotations

from server.admission.decision import Asked, Decide, Decision
from server.http.origins import HostPolicy
from server.settings.settings import Settings
from server.tenants.keys import Keys


def decide_by_caller(settings: Settings, keys: Keys) -> Decide:
    """Who asks, and hosts and origins. ``with_traffic`` and the servers behind do the rest."""
    policy = HostPolicy.of(settings)

    def decide(asked: Asked) -> Decision:
        tenant = keys.tenant(asked.headers, asked.client)
        return Decision(tenant, forbidden=policy.refusal(asked.headers, asked.version))

    return decide
