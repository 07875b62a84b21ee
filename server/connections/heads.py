"""Heads: request heads that arrive together are parsed a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from server.admission.fair_line import FairLine
from server.connections.probes import is_probe
from server.tenants.address import tenant_at

PER_TURN = 16
"""Heads, or pieces of them, that are parsed in one turn of the loop: two milliseconds of refusals.

As many probes are parsed beside them.
"""


class Held(Hashable, Protocol):
    """A connection with bytes of a head that wait to be parsed."""

    def begin_held(self) -> None:
        """Parse them. Does not raise."""


class Heads:
    """Requests begin a few at a time, and probes of health before all others. Event loop only.

    A turn of the loop reads every connection that has bytes. This makes it short: the connections
    hand in their bytes, and between two turns the loop accepts others, reads probes and sends what
    the engine has delivered. Clients' addresses take turns.
    """

    def __init__(self) -> None:
        """The event loop is running."""
        self._loop = asyncio.get_running_loop()
        self._line: FairLine[Held] = FairLine()
        self._num_begun = self._num_probes = 0
        self._is_scheduled = False

    def __len__(self) -> int:
        """How many connections have bytes of a head that wait."""
        return len(self._line)

    def may_begin(self, data: bytes) -> bool:
        """Whether a head that starts, or goes on, with these bytes may be parsed now.

        If so, it counts.
        """
        if self._num_begun < PER_TURN and not self._line:
            self._num_begun += 1
        elif self._num_probes < PER_TURN and is_probe(data):
            self._num_probes += 1
        else:
            return False
        self._schedule()
        return True

    def wait(self, client: tuple[str, int] | None, held: Held) -> None:
        """Call ``held.begin_held`` when it is its turn. ``client`` is the address, if any."""
        self._line.push(tenant_at(client).name, 1, held)
        self._schedule()

    def discard(self, held: Held) -> None:
        """Forget a connection that has ended. Idempotent."""
        self._line.discard(held)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._num_begun = self._num_probes = 0
        while self._line and self._num_begun < PER_TURN:
            self._num_begun += 1
            self._schedule()
            self._line.pop().begin_held()
