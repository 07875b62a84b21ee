"""Endpoint: where the server listens, and how it guards its connections."""

from __future__ import annotations

import asyncio
import shlex
import socket
import ssl
from dataclasses import dataclass

from uvicorn import Config
from uvicorn.server import ServerState

from server.net.acceptor import Acceptor
from server.net.connection_limit import ConnectionLimit, Slot, possible_limit
from server.net.head import Admit
from server.net.limits import Limits
from server.net.listener import listen_tcp, listen_unix, remove_socket, url_of
from server.net.protocol import LimitedProtocol
from server.net.tls import tls_context
from server.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listening socket and its limits. ``socket_path`` is that of a Unix socket."""

    listener: socket.socket
    connections: ConnectionLimit
    limits: Limits
    tls: ssl.SSLContext | None
    socket_path: str | None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        return url_of(self.listener, is_tls=self.tls is not None)

    @property
    def curl(self) -> str:
        """The URL, as curl wants it."""
        if self.socket_path is None:
            return self.url
        scheme = "http" if self.tls is None else "https"
        return f"--unix-socket {shlex.quote(self.socket_path)} {scheme}://localhost"

    def accept(
        self, config: Config, server_state: ServerState, app_state: dict[str, object], admit: Admit
    ) -> Acceptor:
        """Accept connections from now on. ``config`` is loaded."""
        loop = asyncio.get_running_loop()

        def make_protocol(slot: Slot) -> LimitedProtocol:
            return LimitedProtocol(
                config, server_state, app_state, loop, slot=slot, limits=self.limits, admit=admit
            )

        return Acceptor(self.listener, self.connections, make_protocol, self.tls)

    def close(self) -> None:
        """Stop listening and remove the Unix socket. Idempotent."""
        self.listener.close()
        if self.socket_path is not None:
            remove_socket(self.socket_path)


def open_endpoint(settings: Settings, *, descriptors_each: int = 1) -> Endpoint:
    """Listen as the settings say. Raises ListenError.

    ``descriptors_each`` is how many descriptors a connection with a request takes.
    """
    tls = tls_context(settings.ssl_certfile, settings.ssl_keyfile)
    if settings.uds is None:
        listener = listen_tcp(settings.host, settings.port)
    else:
        listener = listen_unix(settings.uds)
    limits = Limits(idle_timeout=settings.idle_timeout, write_timeout=settings.write_timeout)
    connections = possible_limit(settings.max_connections, descriptors_each)
    return Endpoint(listener, connections, limits, tls, settings.uds)
