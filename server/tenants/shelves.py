"""Shelves: the newest values of several owners, within limits on all together."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Shelf(Generic[K, V]):
    """The values of one owner, oldest first, each with its bytes."""

    number: int  # shelves count up, so that of two owners with as much the older one comes first
    values: OrderedDict[K, tuple[V, int]] = field(default_factory=OrderedDict)
    num_bytes: int = 0


class _Most:
    """Finds the owner with the most, in O(log n) on average.

    A heap of entries ``(-amount, number, owner)``. Those that an owner had before are dropped when
    they come to the top, or when half of all must be old.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, int, str]] = {}
        self._heap: list[tuple[int, int, str]] = []

    def set(self, number: int, owner: str, amount: int) -> None:
        """Say how much an owner has now. One with nothing is forgotten."""
        if not amount:
            self._entries.pop(owner, None)
            return
        self._entries[owner] = entry = (-amount, number, owner)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = sorted(self._entries.values())

    def owner(self) -> str:
        while self._heap[0] != self._entries.get(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][2]


class Shelves(Generic[K, V]):
    """Keeps the newest values of each owner, up to a number and a size of all together.

    Of too many values, the owner with the most gives up its oldest; of too many bytes, the owner
    with the most bytes. Not thread-safe.
    """

    def __init__(self, max_values: int, max_bytes: int) -> None:
        self._max_values, self._max_bytes = max_values, max_bytes
        self._shelves: dict[str, _Shelf[K, V]] = {}
        self._most_values, self._most_bytes = _Most(), _Most()
        self._num_values = self._num_bytes = self._num_shelves = 0

    def put(self, owner: str, key: K, value: V, size: int) -> list[tuple[str, V]]:
        """Keep a value of ``size`` bytes; its key is new. Returns what was dropped, with owners."""
        shelf = self._shelves.get(owner)
        if shelf is None:
            self._num_shelves += 1
            shelf = self._shelves[owner] = _Shelf(self._num_shelves)
        assert key not in shelf.values
        shelf.values[key] = value, size
        self._count(owner, shelf, 1, size)
        gone = []
        while self._num_values > self._max_values:
            gone.append(self._drop_oldest_of(self._most_values.owner()))
        while self._num_bytes > self._max_bytes:
            gone.append(self._drop_oldest_of(self._most_bytes.owner()))
        return gone

    def get(self, owner: str, key: K) -> V | None:
        shelf = self._shelves.get(owner)
        kept = None if shelf is None else shelf.values.get(key)
        return None if kept is None else kept[0]

    def pop(self, owner: str, key: K) -> V | None:
        """Forget a value. Returns it; None if there is none."""
        shelf = self._shelves.get(owner)
        if shelf is None or key not in shelf.values:
            return None
        value, size = shelf.values.pop(key)
        self._count(owner, shelf, -1, -size)
        if not shelf.values:
            del self._shelves[owner]
        return value

    def newest_of(self, owner: str) -> Iterator[V]:
        shelf = self._shelves.get(owner)
        kept = () if shelf is None else reversed(shelf.values.values())
        return (value for value, _ in kept)

    def _drop_oldest_of(self, owner: str) -> tuple[str, V]:
        value = self.pop(owner, next(iter(self._shelves[owner].values)))
        assert value is not None
        return owner, value

    def _count(self, owner: str, shelf: _Shelf[K, V], num_values: int, num_bytes: int) -> None:
        self._num_values += num_values
        self._num_bytes += num_bytes
        shelf.num_bytes += num_bytes
        self._most_values.set(shelf.number, owner, len(shelf.values))
        self._most_bytes.set(shelf.number, owner, shelf.num_bytes)
