"""Addresses that the server listens on."""

from __future__ import annotations

import socket
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a server that listens on ``host``.

    Resolves a name. An empty host is every address.
    """
    if not host:
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ip_address(str(address)).is_loopback for address in found)
