"""FairLine: a waiting line that serves tenants in equal shares."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MAX_SPARE = 1024
"""Discarded items, and tenants without an item, that are kept until all are dropped at once."""


class FairLine(Generic[T]):
    """Start-time fair queueing (Goyal, Vin and Cheng, 1996): O(log n) for each call.

    Every item gets the virtual time at which its tenant would begin it if all tenants were served
    side by side, and the least one is next. So two tenants that wait get equal sums of ``cost``,
    up to one item, however many items each has; one tenant's items keep their order. Items are
    distinct.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, T]] = []
        self._items: set[T] = set()
        """What is in the line. The heap has discarded items, too."""
        self._time = 0.0
        self._ends: dict[str, float] = {}
        self._counter = count()

    def __len__(self) -> int:
        return len(self._items)

    def push(self, tenant: str, cost: float, item: T) -> None:
        """Add an item to the tenant's line. ``cost`` is above 0."""
        start = max(self._time, self._ends.get(tenant, 0.0))
        self._ends[tenant] = start + cost
        self._items.add(item)
        heapq.heappush(self._heap, (start, next(self._counter), tenant, item))

    def pop(self) -> T:
        """Remove and return the next item. There must be one."""
        self._time, _, _, item = heapq.heappop(self._heap)
        while item not in self._items:
            self._time, _, _, item = heapq.heappop(self._heap)
        self._items.remove(item)
        self._tidy()
        return item

    def discard(self, item: T) -> None:
        """Remove an item if it is in the line."""
        self._items.discard(item)
        self._tidy()

    def _tidy(self) -> None:
        """Drop what is spare if it is much, so that the line's size bounds its memory.

        A tenant that has no item in the line is at most one item ahead of the others. This is
        forgiven when it is dropped.
        """
        num_spare = max(len(self._heap), len(self._ends)) - len(self._items)
        if self._items and num_spare <= MAX_SPARE:
            return
        self._heap = [entry for entry in self._heap if entry[-1] in self._items]
        heapq.heapify(self._heap)
        self._ends = {tenant: self._ends[tenant] for _, _, tenant, _ in self._heap}
