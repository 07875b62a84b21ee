"""Names of tenants without a key: the client's address."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

from server.tenants.tenant import Tenant

LOCAL = Tenant("local")
"""Everyone behind a Unix socket."""

UNKNOWN = Tenant("unknown")
"""Everyone whose address a trusted proxy reports in a form that is not an IP address."""

PREFIX_LENGTH = 64
"""Bits of an IPv6 address that name its owner: a single client usually has all addresses below."""


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
