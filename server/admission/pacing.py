"""Pacing: a few admitted requests begin in each iteration of the event loop."""

from __future__ import annotations

import asyncio

from core.fair_queue import Entry, FairQueue, fair_entries

BEGINS = 4
"""Requests that begin in one iteration of the loop: a few milliseconds of work."""


class Pacing:
    """Requests that arrive together begin a few at a time, fairly by tenant. Event loop only.

    Between two iterations the loop accepts connections, refuses requests, answers probes and sends
    what the engine has delivered.
    """

    def __init__(self) -> None:
        self._queue: FairQueue[Entry[asyncio.Future[None]]] = fair_entries()
        self._num_begun = 0
        self._is_scheduled = False

    async def begin(self, tenant: str) -> None:
        """Return when the request may begin: at once unless many have begun in this iteration."""
        if self._num_begun < BEGINS and not self._queue:
            self._count()
            return
        entry = Entry(asyncio.get_running_loop().create_future(), tenant)
        self._queue.add(entry)
        try:
            await entry.value
        finally:
            self._queue.discard(entry)

    def _count(self) -> None:
        self._num_begun += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_scheduled = False
        self._num_begun = 0
        while self._queue and self._num_begun < BEGINS:
            waiter = self._queue.pop().value
            if not waiter.done():  # else its request is about to leave the queue
                waiter.set_result(None)
                self._count()
