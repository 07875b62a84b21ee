"""Checks of what the server listens with: the port, connections."""

from __future__ import annotations

from server.doctor.finding import Finding
from server.net.connection_limit import possible_connections, raise_descriptor_limit
from server.net.endpoint import open_endpoint
from server.net.listener import ListenError
from server.settings import Settings


def port(settings: Settings) -> Finding:
    """Listen as the server would, and stop at once."""
    try:
        endpoint = open_endpoint(settings)
    except ListenError as error:
        return Finding("port", "problem", str(error))
    try:
        return Finding("port", "ok", f"{endpoint.url} is free")
    finally:
        endpoint.close()


def connections(settings: Settings) -> Finding:
    """How many connections the limit of descriptors leaves."""
    descriptors = raise_descriptor_limit()
    limit = possible_connections(settings.max_connections, descriptors)
    text = f"{limit:,} at once"
    if limit < settings.max_connections:
        return Finding(
            "connections",
            "note",
            f"{text}, of {settings.max_connections:,} wanted",
            f"the process may have {descriptors} descriptors: raise ulimit -n",
        )
    return Finding("connections", "ok", text)
