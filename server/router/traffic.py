"""Traffic: the requests that are open, what they hold, and the shutdown that waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from server.admission.budget import Budget, RateLimiter
from server.admission.deadline import Watched
from server.settings.settings import Settings
from server.settings.types import Rates
from server.workers.pools import Pacing

HELD_BODIES = 4  # bodies of the largest size that may be held at once
CLOSE_TIMEOUT = 1.0  # seconds that cancelled requests get


class Traffic:
    """Event loop only."""

    def __init__(self, settings: Settings) -> None:
        self.is_draining = False
        self.max_body_size = settings.max_body_size
        self.rates = RateLimiter(settings.rate_limit or Rates())
        self.pacing = Pacing()
        self.body_bytes = Budget(
            HELD_BODIES * settings.max_body_size,
            full="Too many bytes of requests are waiting.",
        )
        self._open: set[Watched] = set()
        self._all_closed = asyncio.Event()

    @property
    def num_open(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def opened(self, watched: Watched) -> Iterator[None]:
        """Count a request that ``watched`` runs."""
        self._open.add(watched)
        try:
            yield
        finally:
            self._open.discard(watched)
            if not self._open:
                self._all_closed.set()

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait for open ones. After so many seconds cancel them."""
        self.is_draining = True
        await self._closed(seconds)
        if self._open:
            self.cancel_all()
            await self._closed(CLOSE_TIMEOUT)

    def cancel_all(self) -> None:
        """End every open request, also if it is blocked on a client."""
        for watched in list(self._open):
            watched.cancel()

    async def _closed(self, seconds: float) -> None:
        self._all_closed.clear()
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), seconds)
