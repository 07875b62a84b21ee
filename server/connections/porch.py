"""Porch: connections that were accepted although the gate has no room. They are not open yet."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from server.connections import refusal
from server.connections.gate import MIN_AGE, NUM_SPARE, Gate
from server.connections.probes import LONGEST_START, is_probe
from server.connections.timer import Timer

LOOK_SECONDS = 0.01
"""How often those that wait are looked at."""

SILENT_SECONDS = 10.0
"""Time in which one that waits must send the first byte of a request."""

NO_BYTES_YET = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR}


class Porch:
    """A short waiting line in front of the gate. Event loop only.

    The first bytes of those that wait are looked at, and not read. A probe of health is let in at
    once. The others are let in when there is room, the oldest first. A request that has waited for
    MIN_AGE is answered 503. So is the oldest if more than NUM_SPARE wait, probes that were let in
    counted. So nobody waits in the listener's backlog, where a probe cannot be told from others.
    Only for connections that begin with HTTP: with TLS nothing could be seen.
    """

    def __init__(
        self,
        gate: Gate,
        let_in: Callable[[socket.socket], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``let_in`` enters the gate and opens the connection."""
        self._gate = gate
        self._let_in = let_in
        self._most = gate.limit + NUM_SPARE
        self._loop = loop
        self._line: dict[socket.socket, float] = {}  # with the time of arrival, the oldest first
        self._timer = Timer(loop)

    def __len__(self) -> int:
        return len(self._line)

    def arrive(self, connection: socket.socket, head: bytes | None) -> None:
        """Take a connection. ``head`` is what ``peek`` has found."""
        if not self._line and not self._gate.is_full:
            self._let_in(connection)
            return
        self._line[connection] = self._loop.time()
        self._admit_probe(connection, head)
        while self._line and self._gate.num_open + len(self._line) > self._most:
            oldest = next(iter(self._line))
            if not self._admit_probe(oldest, peek(oldest)):
                self._refuse(oldest)
        self._make_room()

    def let_in_waiting(self) -> None:
        """Let those in for which there is room."""
        while self._line and not self._gate.is_full:
            self._admit(next(iter(self._line)))

    def close(self) -> None:
        """End all that wait. Idempotent."""
        self._timer.stop()
        for connection in self._line:
            connection.close()
        self._line.clear()

    def _look(self) -> None:
        """Let probes in, end those that have left, and refuse those that have waited for long."""
        now = self._loop.time()
        for connection, since in list(self._line.items()):
            head = peek(connection)
            if head == b"":
                del self._line[connection]
                connection.close()
            elif not self._admit_probe(connection, head):
                patience = SILENT_SECONDS if head is None else MIN_AGE
                if now - since >= patience:
                    self._refuse(connection)
        self.let_in_waiting()
        self._make_room()

    def _make_room(self) -> None:
        """End idle connections, one for each that waits, and look again soon."""
        while self._gate.num_leaving < len(self._line) and self._gate.make_room():
            continue
        if self._line and not self._timer.is_running:
            self._timer.start(LOOK_SECONDS, self._look)

    def _admit_probe(self, connection: socket.socket, head: bytes | None) -> bool:
        """Let it in if it is a probe and there is a descriptor for it."""
        if head is None or not is_probe(head) or self._gate.num_open >= self._most:
            return False
        self._admit(connection)
        return True

    def _admit(self, connection: socket.socket) -> None:
        del self._line[connection]
        self._let_in(connection)

    def _refuse(self, connection: socket.socket) -> None:
        """Answer 503."""
        del self._line[connection]
        self._gate.log_refusal()
        with contextlib.suppress(OSError):  # it may be reset
            # What is left unread would reset the connection before the answer is read.
            with contextlib.suppress(BlockingIOError):
                connection.recv(65536)
            connection.send(refusal.BUSY.response())
        connection.close()


def peek(connection: socket.socket) -> bytes | None:
    """The first bytes, which stay unread: empty if the client has left, None if it is silent."""
    try:
        return connection.recv(LONGEST_START, socket.MSG_PEEK)
    except OSError as error:
        return None if error.errno in NO_BYTES_YET else b""
