"""Tenant: the party that a request is counted for, and its place in the ASGI scope."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

SCOPE_KEY = "tenant"  # key in the ``state`` of an ASGI scope


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


LOCAL = Tenant("local")  # everyone behind a Unix socket
UNKNOWN = Tenant("unknown")  # whose address a trusted proxy reports, but not as an IP address
PREFIX_LENGTH = 64  # bits of an IPv6 address; one client usually has all addresses with the same


def tenant_at(client: tuple[str, int] | None) -> Tenant:
    """The tenant of a connection from ``client``; None is a Unix socket."""
    return LOCAL if client is None else _tenant_at(client[0])


@lru_cache(maxsize=4096)
def _tenant_at(host: str) -> Tenant:
    try:
        address = ip_address(host)
    except ValueError:
        return UNKNOWN
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return Tenant(str(IPv6Network((int(address), PREFIX_LENGTH), strict=False)))
        address = address.ipv4_mapped
    return Tenant(str(address))
