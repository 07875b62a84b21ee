"""Front: everything between the network and the application."""

from __future__ import annotations

import asyncio
import shlex
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from server.connections.acceptor import Acceptor
from server.connections.gate import Gate, Place
from server.connections.guard import Guard
from server.connections.limits import ConnectionLimits
from server.connections.listener import remove_socket, url_of
from server.connections.protocol import GuardedProtocol
from server.connections.turn_away import IsFull, TurnAway


@dataclass(frozen=True, slots=True)
class Front:
    """A listening socket and what guards it. ``socket_path`` is that of a Unix socket."""

    listener: socket.socket
    gate: Gate
    limits: ConnectionLimits
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
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        turn_away: TurnAway,
        is_full: IsFull,
    ) -> Acceptor:
        """Accept connections from now on. ``config`` is loaded.

        ``is_full`` says whether ``turn_away`` answers most requests now.
        """
        loop = asyncio.get_running_loop()
        guard = Guard.of(self.limits, turn_away)

        def make_protocol(place: Place) -> GuardedProtocol:
            return GuardedProtocol(config, server_state, app_state, loop, place=place, guard=guard)

        return Acceptor(self.listener, self.gate, make_protocol, guard.door(is_full), self.tls)

    def close(self) -> None:
        """Stop listening and remove the Unix socket. Idempotent."""
        self.listener.close()
        if self.socket_path is not None:
            remove_socket(self.socket_path)
