"""FairQueue: waiting sequences in an order that shares the engine between tenants by tokens."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ReadOnly
from heapq import heappop, heappush

from core.sequence import Sequence

NUM_REMEMBERED = 64
"""Idle tenants beyond the active ones, after which those that the clock has passed are dropped."""


class _Tenant:
    """A tenant that has waiting or charged sequences, and the tokens that it was charged."""

    __slots__ = ("num_charged", "service", "turn", "waiting")

    def __init__(self, service: float) -> None:
        self.service = service
        self.turn = 0  # grows whenever another sequence becomes the first
        self.num_charged = 0
        self.waiting: list[Sequence] = []  # in the tenant's own order


class FairQueue:
    """Waiting sequences; the next is the first one of the tenant with the least service.

    This is deficit round robin with counters in place of rounds (start-time fair queueing): a
    tenant that comes does not wait until every other one had its turn.

    - The service of a tenant is what its sequences cost in tokens. A sequence is charged what
      ``cost`` expects when it is taken, and what it used when it ends.
    - While tenants wait, the service of one is never ahead of another's by more than the cost of
      its last sequence, or by what it was when the other came.
    - A tenant that comes starts at the clock: the mean of what active tenants have used, running
      sequences excluded. So none saves up service while it is idle, one that used little is before
      one that has much running, and no number of new tenants starves one that waits.
    - Of tenants with equal service, the one whose first sequence was first for longer is next.
    - Within a tenant, lower priorities go first, and equal ones in order of arrival. One tenant
      alone is served in that order. A priority changes nothing between tenants.

    A change costs O(log n) comparisons. Core thread only.
    """

    def __init__(self, cost: Callable[[Sequence], float]) -> None:
        """``cost`` returns the tokens of a sequence at its expected end, prompt included."""
        self._cost = cost
        self._tenants: dict[str, _Tenant] = {}  # the active ones
        self._idle: dict[str, float] = {}  # service of tenants that may be ahead of the clock
        self._order: list[tuple[float, int, _Tenant]] = []  # those that wait: service, turn
        self._charged: dict[Sequence, float] = {}
        self._clock = 0.0
        self._num_turns = 0
        self._num_waiting = 0
        self._num_idle_at_sweep = 0

    def __len__(self) -> int:
        return self._num_waiting

    @property
    def head(self) -> Sequence:
        """The next sequence. There must be one."""
        return self._order[0][2].waiting[0]

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences, in the order in which they would be taken if none ended meanwhile."""
        num_turns, num_seen = self._num_turns, 0
        heap: list[tuple[float, int, ReadOnly[Sequence], int]] = []
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

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence in its place in its tenant. One that was preempted stays charged."""
        name = sequence.request.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(self._idle.pop(name, 0.0))
        if not tenant.waiting:
            tenant.service = max(tenant.service, self._clock)
            self._enter(tenant)
        insort(tenant.waiting, sequence, key=_place)
        self._num_waiting += 1

    def take(self, sequence: Sequence) -> None:
        """Remove a waiting sequence, because it will run, and charge its tenant."""
        tenant = self._tenants[sequence.request.tenant]
        cost = self._cost_of(sequence)
        self._leave(tenant)
        self._pull(tenant, sequence)
        if cost:
            tenant.service += cost
            tenant.num_charged += 1
            self._charged[sequence] = cost
        if tenant.waiting:
            self._enter(tenant)

    def remove(self, sequence: Sequence) -> None:
        """Remove a waiting sequence that ended."""
        tenant = self._tenants[sequence.request.tenant]
        self._leave(tenant)
        self._pull(tenant, sequence)
        if tenant.waiting:
            self._insert(tenant)
        if sequence in self._charged:
            self.settle(sequence, sequence.num_output_tokens)
        else:
            self._retire(sequence.request.tenant)

    def settle(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge a taken sequence that ended for the tokens it used, not for the expected ones."""
        cost = self._charged.pop(sequence)
        tenant = self._tenants[sequence.request.tenant]
        self._clock += num_tokens / len(self._tenants)
        if tenant.waiting:
            self._leave(tenant)
        tenant.service += num_tokens - cost
        tenant.num_charged -= 1
        if tenant.waiting:
            self._insert(tenant)
        self._retire(sequence.request.tenant)

    def _cost_of(self, sequence: Sequence) -> float:
        return 0.0 if sequence in self._charged else max(self._cost(sequence), 1.0)

    def _pull(self, tenant: _Tenant, sequence: Sequence) -> None:
        index = bisect_left(tenant.waiting, _place(sequence), key=_place)
        assert tenant.waiting[index] is sequence
        del tenant.waiting[index]
        self._num_waiting -= 1

    def _enter(self, tenant: _Tenant) -> None:
        """The tenant waits; its first sequence was not the first before."""
        self._num_turns += 1
        tenant.turn = self._num_turns
        self._insert(tenant)

    def _insert(self, tenant: _Tenant) -> None:
        insort(self._order, (tenant.service, tenant.turn, tenant))  # turns are unique

    def _leave(self, tenant: _Tenant) -> None:
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


def _place(sequence: Sequence) -> tuple[int, int]:
    return sequence.request.priority, sequence.arrival
