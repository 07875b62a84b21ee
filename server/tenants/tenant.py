"""Tenant: the party that a request is counted for, and its place in the ASGI scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SCOPE_KEY = "tenant"
"""Key in the ``state`` of an ASGI scope."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The holder of an API key or, of a request without a valid key, the client's address.

    ``name`` is unique and safe in logs and metrics. It is never the key. ``salt`` keeps the
    tenant's prefixes in the cache apart from those of other salts. It is secret: it is never
    logged or sent. The empty salt is shared by all tenants that have it.
    """

    name: str
    salt: str = ""
    has_key: bool = False

    def salted(self, cache_salt: str | None) -> str:
        """Combine the salt with that of a request, which contains no slash."""
        return f"{self.salt}/{cache_salt or ''}" if self.salt else cache_salt or ""


def tenant_of(scope: Any) -> Tenant:
    """The tenant of an HTTP scope. KeyError: ``with_admission`` did not see it."""
    tenant: Tenant = scope["state"][SCOPE_KEY]
    return tenant
