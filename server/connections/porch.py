"""Porch: where connections wait that were accepted and are not open yet."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from server.connections import refusal
from server.connections.door import Door
from server.connections.gate import MIN_AGE, NUM_SPARE, Gate
from server.connections.lingering import Lingering
from server.connections.probes import LONGEST_START, is_probe
from server.connections.timer import Timer

OPENED_PER_TURN = 16
"""Connections that are opened in one turn of the event loop: one or two milliseconds of work."""

PATIENCE = 2 * MIN_AGE
"""Time in which there must be room for one that has sent bytes. Idle ones make way after half."""

LOOK_SECONDS = 0.01
"""How often those that wait are looked at."""

HELD_SECONDS = 0.02
"""Time for which a silent connection is not opened, while most requests are turned away."""

SILENT_SECONDS = 10.0
"""Time in which one that finds no room must send the first byte of a request."""

NO_BYTES_YET = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR}


class Porch:
    """The waiting line between the listener and the gate. Event loop only.

    To accept a connection and to look at its first bytes, which stay unread, costs a quarter of
    what it costs to open it. So many that come at the same time are accepted at once and opened a
    few in each turn of the loop, the oldest first, and a probe of health before all others. In the
    listener's backlog a probe could not be told from others.

    If the gate is full, a request that has waited for PATIENCE is answered 503. So is the oldest if
    NUM_SPARE more than the gate's limit are accepted. Only for connections that begin with HTTP:
    with TLS nothing could be seen.

    While most requests are turned away, they are answered here, before their connections are
    opened: see ``Door``. For that, a silent connection is held for HELD_SECONDS.
    """

    def __init__(
        self,
        gate: Gate,
        let_in: Callable[[socket.socket], None],
        loop: asyncio.AbstractEventLoop,
        door: Door,
        lingering: Lingering,
    ) -> None:
        """``let_in`` enters the gate and opens the connection. ``lingering`` ends answered ones."""
        self._gate = gate
        self._let_in = let_in
        self._door = door
        self._lingering = lingering
        self._most = gate.limit + NUM_SPARE
        self._loop = loop
        self._line: dict[socket.socket, float] = {}  # with the time of arrival, the oldest first
        self._held: dict[socket.socket, float] = {}  # silent ones, until they join the line
        self._timer = Timer(loop)
        self._num_opened = 0  # in this turn
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._line) + len(self._held)

    def arrive(self, connection: socket.socket, head: bytes | None) -> None:
        """Take a connection. ``head`` is what ``peek`` has found."""
        # Held connections have descriptors too, so they may only fill half of the limit.
        may_hold = 2 * (self._gate.num_open + len(self)) < self._gate.limit
        if head is None and may_hold and self._door.is_full():
            self._held[connection] = self._loop.time()
            self._look_soon()
            self._give_descriptors()
            return
        self._line[connection] = self._loop.time()
        self._admit_probe(connection, head)
        self.let_in_waiting()
        self._give_descriptors()
        self._make_room()

    def _give_descriptors(self) -> None:
        """End the oldest while more than ``_most`` connections have a descriptor.

        Those that linger go first, then those that wait are refused.
        """
        while self._gate.num_open + len(self) + len(self._lingering) > self._most:
            if self._lingering.end_oldest():
                continue
            if not self._line:
                return
            oldest = next(iter(self._line))
            if not self._admit_probe(oldest, peek(oldest)):
                self._refuse(oldest)

    def let_in_waiting(self) -> None:
        """Let those in for which there is room, a few in this turn and others in later ones."""
        while self._line and not self._gate.is_full:
            if self._num_opened == OPENED_PER_TURN:
                return
            self._num_opened += 1
            self._admit(next(iter(self._line)))

    def close(self) -> None:
        """End all that wait or linger. Idempotent."""
        self._timer.stop()
        for connection in (*self._line, *self._held):
            connection.close()
        self._line.clear()
        self._held.clear()
        self._lingering.close()

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._num_opened = 0
        self.let_in_waiting()

    def _look(self) -> None:
        """Look at all that wait.

        Held ones join the line, probes are let in, those that have left are ended, and those that
        have waited for long are refused.
        """
        now = self._loop.time()
        for connection, since in list(self._held.items()):
            if peek(connection) is not None or now - since >= HELD_SECONDS:
                self._line[connection] = self._held.pop(connection)
        for connection, since in list(self._line.items()):
            head = peek(connection)
            if head == b"":
                del self._line[connection]
                connection.close()
            elif not self._admit_probe(connection, head):
                patience = SILENT_SECONDS if head is None else PATIENCE
                if self._gate.is_full and now - since >= patience:
                    self._refuse(connection)
        self.let_in_waiting()
        self._make_room()

    def _make_room(self) -> None:
        """End idle connections, one for each that finds no room, and look again soon."""
        num_outside = len(self._line) - max(self._gate.limit - self._gate.num_open, 0)
        while self._gate.num_leaving < num_outside and self._gate.make_room():
            continue
        if self:
            self._look_soon()

    def _look_soon(self) -> None:
        if not self._timer.is_running:
            self._timer.start(LOOK_SECONDS, self._look)

    def _admit_probe(self, connection: socket.socket, head: bytes | None) -> bool:
        """Let it in if it is a probe and there is a descriptor for it."""
        if head is None or not is_probe(head) or self._gate.num_open >= self._most:
            return False
        self._admit(connection)
        return True

    def _admit(self, connection: socket.socket) -> None:
        del self._line[connection]
        if self._door.try_answer(connection):
            self._lingering.end(connection)
        else:
            self._let_in(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _refuse(self, connection: socket.socket) -> None:
        """Answer 503."""
        del self._line[connection]
        self._gate.log_refusal()
        with contextlib.suppress(OSError):  # it may be reset
            connection.send(refusal.BUSY.response())
        self._lingering.end(connection)


def peek(connection: socket.socket) -> bytes | None:
    """The first bytes, which stay unread: empty if the client has left, None if it is silent."""
    try:
        return connection.recv(LONGEST_START, socket.MSG_PEEK)
    except OSError as error:
        return None if error.errno in NO_BYTES_YET else b""
