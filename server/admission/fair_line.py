"""FairLine: a waiting line that serves tenants in equal shares."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MAX_SPARE = 1024
"""What is kept of items and tenants that have left, of each kind, until all is dropped at once."""


@dataclass(slots=True)
class _Tenant(Generic[T]):
    """Items of one tenant, of which ``num_waiting`` were not discarded. At least one was not."""

    turn: int
    """The number of its turn: other turns of its name are void."""
    items: list[tuple[int, int, float, T]] = field(default_factory=list)
    """A heap of priority, arrival, cost and item."""
    num_waiting: int = 0


class FairLine(Generic[T]):
    """Start-time fair queueing (Goyal, Vin and Cheng, 1996): O(log n) for each call.

    The next item of a tenant gets the virtual time at which it would begin if all tenants were
    served side by side, and the least one of all tenants is next. So two tenants that wait get
    equal sums of ``cost``, up to one item, however many items each has. A tenant's items are in
    the order of ``priority``, then of arrival; a priority changes nothing between tenants. Items
    are distinct.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant[T]] = {}
        self._turns: list[tuple[float, int, str]] = []
        """A heap: when the next item of a tenant begins, the number of the turn, the tenant."""
        self._owners: dict[T, str] = {}
        """The tenant of every item in the line."""
        self._time = 0.0
        self._ends: dict[str, float] = {}
        self._counter = count()
        self._num_discarded = 0

    def __len__(self) -> int:
        return len(self._owners)

    def push(self, tenant: str, cost: float, item: T, *, priority: int = 0) -> None:
        """Add an item to the tenant's line. ``cost`` is above 0."""
        line = self._tenants.get(tenant)
        if line is None:
            line = self._tenants[tenant] = _Tenant(next(self._counter))
            start = max(self._time, self._ends.get(tenant, 0.0))
            heapq.heappush(self._turns, (start, line.turn, tenant))
        heapq.heappush(line.items, (priority, next(self._counter), cost, item))
        line.num_waiting += 1
        self._owners[item] = tenant

    def pop(self) -> T:
        """Remove and return the next item. There must be one."""
        start, turn, tenant = heapq.heappop(self._turns)
        while not self._is_valid(turn, tenant):
            start, turn, tenant = heapq.heappop(self._turns)
        line = self._tenants[tenant]
        _, _, cost, item = heapq.heappop(line.items)
        while item not in self._owners:
            self._num_discarded -= 1
            _, _, cost, item = heapq.heappop(line.items)
        self._time, self._ends[tenant] = start, start + cost
        line.turn = next(self._counter)
        heapq.heappush(self._turns, (start + cost, line.turn, tenant))
        self._remove(item)
        return item

    def discard(self, item: T) -> None:
        """Remove an item if it is in the line."""
        if item in self._owners:
            self._num_discarded += 1
            self._remove(item)

    def _is_valid(self, turn: int, tenant: str) -> bool:
        line = self._tenants.get(tenant)
        return line is not None and line.turn == turn

    def _remove(self, item: T) -> None:
        """Forget an item, and its tenant with the last one."""
        tenant = self._owners.pop(item)
        line = self._tenants[tenant]
        line.num_waiting -= 1
        if not line.num_waiting:
            self._num_discarded -= len(line.items)
            del self._tenants[tenant]
        self._tidy()

    def _tidy(self) -> None:
        """Drop what is spare if it is much, so that the line's size bounds its memory.

        A tenant that has no item in the line is at most one item ahead of the others. This is
        forgiven when it is dropped.
        """
        num_void = max(len(self._turns), len(self._ends)) - len(self._tenants)
        if self._owners and max(num_void, self._num_discarded) <= MAX_SPARE:
            return
        for line in self._tenants.values():
            line.items = [entry for entry in line.items if entry[-1] in self._owners]
            heapq.heapify(line.items)
        self._num_discarded = 0
        self._turns = [entry for entry in self._turns if self._is_valid(*entry[1:])]
        heapq.heapify(self._turns)
        self._ends = {name: end for name, end in self._ends.items() if name in self._tenants}
