"""Routing policies: which replica gets a request. Each counts the open requests of replicas."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

from server.router.upstream import LOAD_BOUND

_MASK = 2**64 - 1


class Policy(ABC):
    """Chooses replicas, which are numbers from 0.

    The caller reports with ``opened`` and ``closed`` what becomes of a choice.
    """

    def __init__(self, num_replicas: int) -> None:
        self.num_replicas = num_replicas
        self.num_open = [0] * num_replicas
        self.num_all = 0

    @abstractmethod
    def choose(self, key: int) -> int:
        """The replica for a request of the conversation with this key."""

    def opened(self, replica: int) -> None:
        """A request was sent there."""
        self.num_open[replica] += 1
        self.num_all += 1

    def closed(self, replica: int) -> None:
        """A request has ended there."""
        self.num_open[replica] -= 1
        self.num_all -= 1


class RoundRobin(Policy):
    """One after the other."""

    def __init__(self, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._turns = count()

    def choose(self, key: int) -> int:
        del key
        return next(self._turns) % self.num_replicas


class LeastLoaded(Policy):
    """The fewest open requests; of equal ones, the one whose last turn is longest ago."""

    def __init__(self, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._turns = count(1)
        self._last = [0] * num_replicas
        self._heap = [(0, 0, i) for i in range(num_replicas)]

    def choose(self, key: int) -> int:
        del key
        while True:
            num_open, last, replica = self._heap[0]
            if num_open == self.num_open[replica] and last == self._last[replica]:
                return replica
            heappop(self._heap)

    def opened(self, replica: int) -> None:
        super().opened(replica)
        self._last[replica] = next(self._turns)
        self._changed(replica)

    def closed(self, replica: int) -> None:
        super().closed(replica)
        self._changed(replica)

    def _changed(self, replica: int) -> None:
        if len(self._heap) > 8 * self.num_replicas:
            self._heap = [(n, self._last[i], i) for i, n in enumerate(self.num_open)]
            heapify(self._heap)
        else:
            heappush(self._heap, (self.num_open[replica], self._last[replica], replica))


class SessionHash(Policy):
    """The conversation's own replica, whatever its load."""

    def choose(self, key: int) -> int:
        return place(key, 0, self.num_replicas)


class BoundedHash(Policy):
    """The first replica in the conversation's order that has room for one more request.

    It has room while it has fewer open requests than ``bound`` times the mean, or fewer than
    ``least``. With a ``least`` of 1 this is the rule of ``roseinfer route``, where the order is
    that of rendezvous hashing: a random permutation for each conversation. Here it is drawn as far
    as it is needed.
    """

    def __init__(self, num_replicas: int, bound: float = LOAD_BOUND, least: int = 1) -> None:
        super().__init__(num_replicas)
        self.bound = bound
        self.least = least

    def choose(self, key: int) -> int:
        most = max(self.least, math.ceil(self.bound * (self.num_all + 1) / self.num_replicas))
        return next(
            replica
            for i in count()
            if self.num_open[replica := place(key, i, self.num_replicas)] < most
        )


def place(key: int, index: int, num_replicas: int) -> int:
    """Draw ``index`` of a conversation's order, with repetitions (splitmix64)."""
    x = (key + 0x9E3779B97F4A7C15 * (index + 1)) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return (x ^ (x >> 31)) % num_replicas


MakePolicy = Callable[[int], Policy]

_NAMED: dict[str, MakePolicy] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "session-hash": SessionHash,
}


def policy_of(name: str) -> MakePolicy:
    """The policy of a name. Raises ValueError.

    ``round-robin``, ``least-loaded``, ``session-hash``, ``bounded``, ``bounded-1.5`` (the bound) or
    ``bounded-1.5+8`` (and how many requests a replica may always have).
    """
    if name in _NAMED:
        return _NAMED[name]
    kind, _, numbers = name.partition("-")
    if kind != "bounded":
        raise ValueError(f"{name} is no policy")
    bound, _, least = numbers.partition("+")
    factor = float(bound) if bound else LOAD_BOUND
    if factor < 1:
        raise ValueError("a bound below 1 leaves no replica")
    return partial(BoundedHash, bound=factor, least=int(least or 1))
