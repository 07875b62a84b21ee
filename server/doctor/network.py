"""Checks of what the server listens with: the port, connections."""

from __future__ import annotations

from server.connections.descriptors import connection_limit, raise_descriptor_limit
from server.connections.errors import FrontError
from server.connections.opening import open_front
from server.doctor.finding import Finding
from server.settings import Settings


def port(settings: Settings) -> Finding:
    """Listen as the server would, and stop at once."""
    try:
        front = open_front(settings)
    except FrontError as error:
        return Finding("port", "problem", str(error))
    try:
        return Finding("port", "ok", f"{front.url} is free")
    finally:
        front.close()


def connections(settings: Settings) -> Finding:
    """How many connections the limit of descriptors leaves."""
    descriptors = raise_descriptor_limit()
    limit = connection_limit(settings.max_connections, descriptors)
    text = f"{limit:,} at once"
    if limit < settings.max_connections:
        return Finding(
            "connections",
            "note",
            f"{text}, of {settings.max_connections:,} wanted",
            f"the process may have {descriptors} descriptors: raise ulimit -n",
        )
    return Finding("connections", "ok", text)
