"""Acceptor: takes connections off the listener, as many as the connection limit has room for."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from server.net.connection_limit import ConnectionLimit, Slot
from server.net.protocol import LimitedProtocol

ACCEPTS = 64
"""Connections that are opened in one iteration of the event loop: a few milliseconds of work."""

PAUSE_WITHOUT_DESCRIPTORS = 0.1
"""Seconds until the next try after the system had no descriptor or memory left."""

TLS_HANDSHAKE_TIMEOUT = 10.0
TLS_SHUTDOWN_TIMEOUT = 5.0
"""Seconds until a connection is ended without the client's part."""

EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


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
                self._pause(self._limit.seconds_to_room())
                return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # that one connection has failed
                self._limit.warn("Cannot accept connections: %s", error.strerror)
                self._pause(PAUSE_WITHOUT_DESCRIPTORS)
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

    def _pause(self, seconds: float | None = None) -> None:
        """Stop accepting; with ``seconds``, for so long at most."""
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if seconds is not None:
            self._retry = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._is_accepting or self._is_closed:
            return
        self._pause()
        self._is_accepting = True
        self._loop.add_reader(self._listener, self._accept_some)
