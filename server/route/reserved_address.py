"""ReservedAddress: a Unix socket or a port on which a process that the router starts listens."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from server.route.address import Address
from server.route.config import PORT, SOCKET

_SHARED = ("SO_REUSEADDR", "SO_REUSEPORT")


class ReservedAddress:
    """Until ``close``, the system gives the address to no other process.

    The Unix socket is in a folder of its own. The port is bound here, and nobody listens on it yet.
    A server that sets SO_REUSEADDR or SO_REUSEPORT, as servers do, can listen on it all the same.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """``command`` contains PORT or SOCKET. Raises OSError."""
        self._folder: str | None = None
        self._bound: socket.socket | None = None
        path = ""
        if any(SOCKET in argument for argument in command):
            self._folder = tempfile.mkdtemp(prefix="roseinfer-route-")  # its mode is 0700
            path = str(Path(self._folder) / "model.sock")
            self.address = Address(socket_path=path)
        else:
            self._bound = _bound_socket()
            self.address = Address("127.0.0.1", self._bound.getsockname()[1])
        self._values = {PORT: str(self.address.port), SOCKET: path}

    def filled(self, argument: str) -> str:
        """The argument with the address in it."""
        for place, value in self._values.items():
            argument = argument.replace(place, value)
        return argument

    def close(self) -> None:
        """The process has ended. Idempotent."""
        if self._bound is not None:
            self._bound.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _bound_socket() -> socket.socket:
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket())
        for option in _SHARED:
            if hasattr(socket, option):  # one of them is not everywhere
                bound.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
        # The port has to be free on all addresses: a server may listen on all of them.
        bound.bind(("", 0))
        stack.pop_all()
    return bound
