"""FairQueue: start-time fair queueing of tenants by cost. It imports no torch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")

NUM_REMEMBERED = 64
"""Idle tenants beyond the active ones, after which those that the clock has passed are dropped."""

_arrivals = count()


@dataclass(eq=False, slots=True)
class Entry(Generic[V]):
    """A value in a queue of ``fair_entries``."""

    value: V
    tenant: str
    cost: float = 1.0
    priority: int = 0
    arrival: int = field(default_factory=_arrivals.__next__)


class _Tenant(Generic[T]):
    """A tenant that has waiting or charged items, and the cost that it was charged."""

    __slots__ = ("num_charged", "service", "turn", "waiting")

    def __init__(self, service: float) -> None:
        self.service = service
        self.turn = 0  # grows whenever another item becomes the first
        self.num_charged = 0
        self.waiting: list[T] = []  # in the tenant's own order


class FairQueue(Generic[T]):
    """Waiting items; the next is the first one of the tenant with the least service.

    This is start-time fair queueing (Goyal, Vin and Cheng, 1996), with a cost that may be known
    only at the end:

    - The service of a tenant is what its items cost. An item is charged what ``cost`` expects when
      it is taken, and what it used when it is settled.
    - While tenants wait, the service of one is never ahead of another's by more than the cost of
      its last item, or by what it was when the other came.
    - A tenant that comes starts at the clock: the mean of what active tenants have used, charged
      items excluded. So none saves up service while it is idle, one that used little is before
      one that has much running, and no number of new tenants starves one that waits.
    - Of tenants with equal service, the one whose first item was first for longer is next.
    - Within a tenant, items are in the order of ``place``. One tenant alone is served in that
      order. A place changes nothing between tenants.

    A change costs O(log n) comparisons. One thread only.
    """

    def __init__(
        self,
        cost: Callable[[T], float],
        *,
        tenant: Callable[[T], str],
        place: Callable[[T], tuple[int, int]],
    ) -> None:
        """``place`` is distinct within a tenant; the least is first."""
        self._cost = cost
        self._tenant_name = tenant
        self._place = place
        self._tenants: dict[str, _Tenant[T]] = {}  # the active ones
        self._idle: dict[str, float] = {}  # service of tenants that may be ahead of the clock
        self._order: list[tuple[float, int, _Tenant[T]]] = []  # those that wait: service, turn
        self._charged: dict[T, float] = {}
        self._clock = 0.0
        self._num_turns = 0
        self._num_waiting = 0
        self._num_idle_at_sweep = 0

    def __len__(self) -> int:
        return self._num_waiting

    @property
    def head(self) -> T:
        """The next item. There must be one."""
        return self._order[0][2].waiting[0]

    def __iter__(self) -> Iterator[T]:
        """All items, in the order in which they would be taken if none ended meanwhile."""
        num_turns, num_seen = self._num_turns, 0
        heap: list[tuple[float, int, ReadOnly[T], int]] = []
        while heap or num_seen < len(self._order):
            if num_seen < len(self._order) and (not heap or self._order[num_seen][:2] < heap[0]):
                service, turn, tenant = self._order[num_seen]
                heappush(heap, (service, turn, tenant.waiting, 0))
                num_seen += 1
            service, _, waiting, index = heappop(heap)
            yield waiting[index]
            if index + 1 < len(waiting):
                num_turns += 1
                cost = self._cost_of(waiting[index])
                heappush(heap, (service + cost, num_turns, waiting, index + 1))

    def add(self, item: T) -> None:
        """Queue an item in its place in its tenant. One that was preempted stays charged."""
        name = self._tenant_name(item)
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(self._idle.pop(name, 0.0))
        if not tenant.waiting:
            tenant.service = max(tenant.service, self._clock)
            self._enter(tenant)
        insort(tenant.waiting, item, key=self._place)
        self._num_waiting += 1

    def take(self, item: T) -> None:
        """Remove a waiting item, because it will run, and charge its tenant."""
        tenant = self._tenants[self._tenant_name(item)]
        cost = self._cost_of(item)
        self._leave(tenant)
        self._pull(tenant, item)
        if cost:
            tenant.service += cost
            tenant.num_charged += 1
            self._charged[item] = cost
        if tenant.waiting:
            self._enter(tenant)

    def pop(self) -> T:
        """Remove and return the next item, which costs what was expected. There must be one."""
        item = self.head
        self.take(item)
        self.settle(item, self._charged[item])
        return item

    def remove(self, item: T, used: float = 0.0) -> None:
        """Remove a waiting item that ended. ``used`` is what it has cost if it was charged."""
        tenant = self._tenants[self._tenant_name(item)]
        self._leave(tenant)
        self._pull(tenant, item)
        if tenant.waiting:
            self._insert(tenant)
        if item in self._charged:
            self.settle(item, used)
        else:
            self._retire(self._tenant_name(item))

    def discard(self, item: T) -> None:
        """Remove an item if it waits."""
        tenant = self._tenants.get(self._tenant_name(item))
        if tenant is not None and self._index(tenant, item) is not None:
            self.remove(item)

    def settle(self, item: T, used: float) -> None:
        """Charge a taken item that ended for what it used, not for what was expected."""
        cost = self._charged.pop(item)
        tenant = self._tenants[self._tenant_name(item)]
        self._clock += used / len(self._tenants)
        if tenant.waiting:
            self._leave(tenant)
        tenant.service += used - cost
        tenant.num_charged -= 1
        if tenant.waiting:
            self._insert(tenant)
        self._retire(self._tenant_name(item))

    def _cost_of(self, item: T) -> float:
        return 0.0 if item in self._charged else max(self._cost(item), 1.0)

    def _pull(self, tenant: _Tenant[T], item: T) -> None:
        index = self._index(tenant, item)
        assert index is not None
        del tenant.waiting[index]
        self._num_waiting -= 1

    def _index(self, tenant: _Tenant[T], item: T) -> int | None:
        """Return the index of a waiting item, None if it does not wait."""
        index = bisect_left(tenant.waiting, self._place(item), key=self._place)
        waits = index < len(tenant.waiting) and tenant.waiting[index] is item
        return index if waits else None

    def _enter(self, tenant: _Tenant[T]) -> None:
        """The tenant waits; its first item was not the first before."""
        self._num_turns += 1
        tenant.turn = self._num_turns
        self._insert(tenant)

    def _insert(self, tenant: _Tenant[T]) -> None:
        insort(self._order, (tenant.service, tenant.turn, tenant))  # turns are unique

    def _leave(self, tenant: _Tenant[T]) -> None:
        del self._order[bisect_left(self._order, (tenant.service, tenant.turn, tenant))]

    def _retire(self, name: str) -> None:
        """Forget a tenant that is not active, unless it is ahead of the clock."""
        tenant = self._tenants[name]
        if tenant.waiting or tenant.num_charged:
            return
        del self._tenants[name]
        if tenant.service > self._clock:
            self._idle[name] = tenant.service
        if not self._tenants:
            self._idle.clear()
            self._clock = 0.0
        elif len(self._idle) > 2 * self._num_idle_at_sweep + NUM_REMEMBERED:
            self._idle = {n: service for n, service in self._idle.items() if service > self._clock}
            self._num_idle_at_sweep = len(self._idle)


def fair_entries() -> FairQueue[Entry[V]]:
    """A queue of entries, which have their costs and places themselves."""
    return FairQueue(
        lambda entry: entry.cost,
        tenant=lambda entry: entry.tenant,
        place=lambda entry: (entry.priority, entry.arrival),
    )
