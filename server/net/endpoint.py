"""Endpoint: where the server listens, on TCP or a Unix socket, with TLS, and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from uvicorn import Config
from uvicorn.server import ServerState

from server.net.acceptor import Acceptor
from server.net.connection_limit import ConnectionLimit, possible_limit
from server.net.protocol import LimitedProtocol, Limits
from server.settings.settings import Settings

BACKLOG = 2048

SOCKET_MODE = 0o660
"""Permissions of a Unix socket: its owner and group may connect."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Options with which the kernel finds that a peer has vanished, after two minutes."""


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
        if self.socket_path is not None:
            return f"unix:{self.socket_path}"
        host, port = self.listener.getsockname()[:2]
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def curl(self) -> str:
        """The URL, as curl wants it."""
        if self.socket_path is None:
            return self.url
        scheme = "http" if self.tls is None else "https"
        return f"--unix-socket {shlex.quote(self.socket_path)} {scheme}://localhost"

    def accept(
        self, config: Config, server_state: ServerState, app_state: dict[str, object]
    ) -> Acceptor:
        """Accept connections from now on. ``config`` is loaded."""
        loop = asyncio.get_running_loop()
        make = partial(LimitedProtocol, config, server_state, app_state, loop, self.limits)
        return Acceptor(self.listener, self.connections, make, self.tls)

    def close(self) -> None:
        """Stop listening and remove the Unix socket. Idempotent."""
        self.listener.close()
        if self.socket_path is not None:
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(Path(self.socket_path).lstat().st_mode):
                    Path(self.socket_path).unlink()


def open_endpoint(settings: Settings, *, descriptors_each: int = 1) -> Endpoint:
    """Listen as the settings say. A request takes ``descriptors_each``. Raises ListenError."""
    tls = tls_context(settings.ssl_certfile, settings.ssl_keyfile)
    if settings.uds is None:
        listener = listen_tcp(settings.host, settings.port)
    else:
        listener = listen_unix(settings.uds)
    limits = Limits(idle_timeout=settings.idle_timeout, write_timeout=settings.write_timeout)
    connections = possible_limit(settings.max_connections, descriptors_each)
    return Endpoint(listener, connections, limits, tls, settings.uds)


class ListenError(Exception):
    """The server cannot listen as its settings say. The text is one line."""


def listen_tcp(host: str, port: int) -> socket.socket:
    """Listen on an address. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {_reason(error, port)}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted sockets inherit it
    for name, value in KEEP_ALIVE.items():
        if option := getattr(socket, name, None):
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def listen_unix(path: str) -> socket.socket:
    """Listen on a Unix socket; replace one that a dead server has left. Raises ListenError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        _remove_stale(path)
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"cannot listen on {path}: {error.strerror or error}") from None
    finally:
        os.umask(umask)
    return listener


def _reason(error: OSError, port: int) -> str:
    """What is wrong with an address, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            process = listening_process(port)
            by = f" by {process}" if process else ""
            return f"the port is in use{by}; stop it, or choose another port with --port"
        case errno.EACCES:
            return "ports below 1024 are for root; choose another with --port"
        case errno.EADDRNOTAVAIL:
            return "the machine has no such address; --host 0.0.0.0 listens on all that it has"
        case _:
            return error.strerror or str(error)


def listening_process(port: int, root: Path = Path("/")) -> str | None:
    """Name the process that listens on a TCP port, as ``nginx (process 17)``.

    None if nobody listens, if the process is another user's, and on systems without ``/proc``.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port, root)}
    if not wanted:
        return None
    for folder in sorted((root / "proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # of another user, or it has just ended
            if any(str(link.readlink()) in wanted for link in (folder / "fd").iterdir()):
                return f"{(folder / 'comm').read_text().strip()} (process {folder.name})"
    return None


def _listening_inodes(port: int, root: Path) -> Iterator[str]:
    """Of the sockets that listen on the port."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (root / "proc/net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _remove_stale(path: str) -> None:
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError("the path exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(path)
    if error in {0, errno.EAGAIN}:  # or its backlog is full
        raise OSError("another process listens on it")
    if error != errno.ECONNREFUSED:
        raise OSError(error, os.strerror(error))
    Path(path).unlink()


def tls_context(certfile: str | None, keyfile: str | None) -> ssl.SSLContext | None:
    """The context of a server: TLS 1.2 or later. None if there is no certificate.

    ``certfile`` holds the certificate and its chain, and the key unless ``keyfile`` is given.
    Raises ListenError.
    """
    if certfile is None:
        if keyfile is not None:
            raise ListenError("--ssl-keyfile needs --ssl-certfile")
        return None
    for flag, path in (("--ssl-certfile", certfile), ("--ssl-keyfile", keyfile)):
        try:
            if path is not None:
                Path(path).open("rb").close()
        except OSError as error:
            raise ListenError(f"{flag}: cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certfile, keyfile, password=_refuse_password)
    except ssl.SSLError as error:
        reason = f"--ssl-keyfile: {keyfile or certfile} is not the key of {certfile}"
        if error.reason != "KEY_VALUES_MISMATCH":
            files = f"{certfile} and {keyfile}" if keyfile else certfile
            reason = f"--ssl-certfile: no certificate and key in PEM form in {files}"
        raise ListenError(reason) from None
    return context


def _refuse_password() -> str:
    raise ListenError("--ssl-keyfile: the key has a password; remove it with openssl pkey")
