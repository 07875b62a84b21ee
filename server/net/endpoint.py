"""Endpoint: where the server listens, with TLS and limits. Acceptor: takes connections off it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from uvicorn import Config
from uvicorn.server import ServerState

from server.net.connection_limit import ConnectionLimit, Slot, possible_limit
from server.net.protocol import ConnectionLimits, LimitedProtocol
from server.settings.settings import Settings

BACKLOG = 2048
SOCKET_MODE = 0o660  # permissions of a Unix socket: its owner and group may connect

KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Options with which the kernel finds that a peer has vanished, after two minutes."""

ACCEPTS = 64  # connections in one iteration of the event loop: a few milliseconds of work
PAUSE = 0.04  # seconds to the next try where the limit, or the system, has no room for a connection
TLS_HANDSHAKE_TIMEOUT = 10.0  # seconds for the client's part
TLS_SHUTDOWN_TIMEOUT = 5.0  # the same
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listening socket and its limits. ``socket_path`` is that of a Unix socket."""

    listener: socket.socket
    connections: ConnectionLimit
    limits: ConnectionLimits
    tls: ssl.SSLContext | None
    socket_path: str | None

    @property
    def url(self) -> str:
        """The URL at which clients reach the server."""
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
    limits = ConnectionLimits(
        idle_timeout=settings.idle_timeout, write_timeout=settings.write_timeout
    )
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
    """The cause of the error for an address, and the remedy."""
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
    """The inodes of sockets that listen on the port."""
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


class Acceptor:
    """Accepts until it is closed. Event loop only.

    asyncio's own servers accept until there are no descriptors left, and drop connections then.
    Here those that find no room wait in the listener's backlog. ``close`` and ``wait_closed`` are
    what ``uvicorn.Server.servers`` needs.
    """

    def __init__(
        self,
        listener: socket.socket,
        limit: ConnectionLimit,
        make_protocol: Callable[[Slot], LimitedProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._limit = limit
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._is_accepting = False
        self._is_closed = False
        limit.on_room = self._resume
        self._resume()

    def close(self) -> None:
        """Stop listening. Open connections stay, and so do those being opened. Idempotent.

        Handshakes end. A plain connection may have a request already: uvloop would tear it down
        without a word to its protocol.
        """
        self._is_closed = True
        if self._is_accepting:
            self._pause()
        for task in self._opening if self._tls is not None else ():
            task.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Wait for connections that were being opened when it was closed."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTS):
            if not self._limit.has_room():
                self._pause()
                return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # that one connection has failed
                self._limit.warn("Cannot accept connections: %s", error.strerror)
                self._pause()
                return
            connection.setblocking(False)
            slot = self._limit.enter(connection.fileno())
            task = self._loop.create_task(self._open(connection, slot))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            if self._tls is not None:
                slot.wait(task.cancel)

    async def _open(self, connection: socket.socket, slot: Slot) -> None:
        """Give the connection to a protocol, after the handshake if there is one.

        From ``connection_made`` on, the protocol owns the slot.
        """
        try:
            _, protocol = await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(slot),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT if self._tls else None,
                ssl_shutdown_timeout=TLS_SHUTDOWN_TIMEOUT if self._tls else None,
            )
        # A failed or late handshake is an OSError. Only ``close`` and the limit cancel the task.
        except (OSError, asyncio.CancelledError):
            connection.close()
            slot.leave()
            return
        if self._is_closed:
            protocol.shutdown()

    def _pause(self) -> None:
        """Stop accepting, for PAUSE at most."""
        self._is_accepting = False
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(PAUSE, self._resume)

    def _resume(self) -> None:
        if self._is_accepting or self._is_closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._is_accepting = True
        self._loop.add_reader(self._listener, self._accept_some)
