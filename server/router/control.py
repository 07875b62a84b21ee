"""decide_by_caller: what the router decides about a request from its head."""

from __future__ import annotations

from typing import Any

from server.admission.control import Decide, Decision
from server.http.origins import HostPolicy
from server.settings.settings import Settings
from server.tenants.keys import Keys


def decide_by_caller(settings: Settings, keys: Keys) -> Decide:
    """Who asks, and hosts and origins. ``with_traffic`` and the servers behind do the rest."""
    policy = HostPolicy.of(settings)

    def decide(scope: Any) -> Decision:
        tenant = keys.tenant(scope["headers"], scope.get("client"))
        return Decision(tenant, policy.refusal(scope["headers"], scope["http_version"]))

    return decide
