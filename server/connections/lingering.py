"""Lingering: ends connections that were answered without a protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections import OrderedDict

from server.connections.timer import Timer

MAX_DRAINED = 1024 * 1024
"""Bytes that a client may still send before it has read its answer."""

PIECE = 64 * 1024
"""Bytes that are dropped in one turn of the loop."""

MIN_WAIT = 0.1
"""Seconds between two looks at those whose time may be over."""


class Lingering:
    """Ends connections in the two steps of RFC 9112, section 9.6. Event loop only.

    To close a socket that has unread bytes, or gets some later, resets the connection, and the
    client may lose the answer. So only our half is closed at first. What the client still sends is
    dropped until it has closed its own half, for ``seconds`` and MAX_DRAINED bytes at most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._since: OrderedDict[socket.socket, float] = OrderedDict()  # the oldest first
        self._num_drained: dict[socket.socket, int] = {}
        self._timer = Timer(loop)

    def __len__(self) -> int:
        """Connections that still have a descriptor."""
        return len(self._since)

    def end(self, connection: socket.socket) -> None:
        """End a connection, whose answer was sent."""
        try:
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # the client has left
            connection.close()
            return
        self._since[connection] = self._loop.time()
        self._num_drained[connection] = 0
        self._drain(connection)
        if connection not in self._since:
            return
        self._loop.add_reader(connection, self._drain, connection)
        if not self._timer.is_running:
            self._timer.start(self._seconds, self._end_late)

    def end_oldest(self) -> bool:
        """Close the connection that has lingered for longest. False: there is none."""
        for connection in self._since:
            self._close(connection)
            return True
        return False

    def close(self) -> None:
        """Close all. Idempotent."""
        self._timer.stop()
        while self.end_oldest():
            continue

    def _drain(self, connection: socket.socket) -> None:
        """Drop what the client has sent."""
        data = b""
        with contextlib.suppress(OSError):  # reset
            try:
                data = connection.recv(PIECE)
            except (BlockingIOError, InterruptedError):
                return
        self._num_drained[connection] += len(data)
        if not data or self._num_drained[connection] >= MAX_DRAINED:
            self._close(connection)

    def _end_late(self) -> None:
        """Close those whose time is over."""
        now = self._loop.time()
        late = itertools.takewhile(lambda item: now - item[1] >= self._seconds, self._since.items())
        for connection, _ in list(late):
            self._close(connection)
        if self._since:
            first = next(iter(self._since.values()))
            self._timer.start(max(first + self._seconds - now, MIN_WAIT), self._end_late)

    def _close(self, connection: socket.socket) -> None:
        del self._since[connection], self._num_drained[connection]
        self._loop.remove_reader(connection)
        connection.close()
        if not self._since:
            self._timer.stop()
