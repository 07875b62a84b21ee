"""Turns: a few requests begin in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from server.admission.fair_line import FairLine

PER_TURN = 4
"""Requests that begin in one turn of the loop: a few milliseconds of work."""


class Turns:
    """Requests that arrive together begin a few at a time. Event loop only.

    Between two turns the loop accepts connections, refuses requests, answers probes and sends what
    the engine has delivered. Tenants take turns too.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: FairLine[asyncio.Future[None]] = FairLine()
        self._num_begun = 0
        self._is_scheduled = False
        self._num_waiting: Counter[str] = Counter()

    def num_waiting(self, tenant: str) -> int:
        """How many requests of the tenant have not begun."""
        return self._num_waiting[tenant]

    async def begin(self, tenant: str) -> None:
        """Return when the request may begin: at once unless many have begun in this turn."""
        if self._num_begun < PER_TURN and not self._line:
            self._begin_one()
            return
        turn = self._loop.create_future()
        self._line.push(tenant, 1, turn)
        self._num_waiting[tenant] += 1
        try:
            await turn
        finally:
            self._line.discard(turn)
            self._num_waiting[tenant] -= 1
            if not self._num_waiting[tenant]:
                del self._num_waiting[tenant]

    def _begin_one(self) -> None:
        self._num_begun += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._num_begun = 0
        while self._line and self._num_begun < PER_TURN:
            turn = self._line.pop()
            if not turn.done():  # else its request is about to leave the line
                turn.set_result(None)
                self._begin_one()
