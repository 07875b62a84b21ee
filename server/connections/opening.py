"""open_front: listen as the settings say."""

from __future__ import annotations

import logging

from server.connections.descriptors import connection_limit, raise_descriptor_limit
from server.connections.front import Front
from server.connections.gate import Gate
from server.connections.limits import ConnectionLimits
from server.connections.listener import listen_tcp, listen_unix
from server.connections.tls import tls_context
from server.settings import Settings

logger = logging.getLogger("roseinfer.connections")


def open_front(settings: Settings, *, descriptors_each: int = 1) -> Front:
    """Listen as the settings say. Raises FrontError.

    ``descriptors_each`` is how many descriptors a connection with a request takes.
    """
    tls = tls_context(settings.ssl_certfile, settings.ssl_keyfile)
    if settings.uds is None:
        listener = listen_tcp(settings.host, settings.port)
    else:
        listener = listen_unix(settings.uds)
    limits = ConnectionLimits(
        idle_timeout=settings.idle_timeout, write_timeout=settings.write_timeout
    )
    gate = _gate(settings.max_connections, descriptors_each)
    return Front(listener, gate, limits, tls, settings.uds)


def _gate(wanted: int, descriptors_each: int) -> Gate:
    descriptors = raise_descriptor_limit()
    limit = connection_limit(wanted, descriptors, each=descriptors_each)
    if limit < wanted:
        logger.warning(
            "%d connections are served, not %d: the process may have %d descriptors (ulimit -n)",
            limit,
            wanted,
            descriptors,
        )
    return Gate(limit)
