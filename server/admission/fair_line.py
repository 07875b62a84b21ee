"""FairLine: a waiting line that serves tenants in equal shares."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class FairLine(Generic[T]):
    """Start-time fair queueing (Goyal, Vin and Cheng, 1996): O(log n) for each call.

    Every item gets the virtual time at which its tenant would begin it if all tenants were served
    side by side, and the least one is next. So two tenants that wait get equal sums of ``cost``,
    up to one item, however many items each has; one tenant's items keep their order.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._time = 0.0
        self._ends: dict[str, float] = {}
        self._counter = count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, tenant: str, cost: float, item: T) -> None:
        """Add an item to the tenant's line. ``cost`` is above 0."""
        start = max(self._time, self._ends.get(tenant, 0.0))
        self._ends[tenant] = start + cost
        heapq.heappush(self._heap, (start, next(self._counter), item))

    def pop(self) -> T:
        """Remove and return the next item. There must be one."""
        self._time, _, item = heapq.heappop(self._heap)
        if not self._heap:
            self._ends.clear()  # nobody waits, so nobody is ahead
        return item
