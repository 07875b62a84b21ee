"""WaitingTexts: the texts that no batch has taken yet, by tenant."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field

from core.contract.messages import EngineRequest

SPARE = 64
"""Entries for removed texts that a heap may have beyond as many as for those that wait."""


@dataclass(slots=True)
class _Line:
    """The texts of one tenant. The heap may name texts that were removed."""

    heap: list[tuple[int, int, str]] = field(default_factory=list)
    """Priority, number of arrival and id."""
    requests: dict[str, EngineRequest] = field(default_factory=dict)


class WaitingTexts:
    """Tenants take turns; of one tenant, lower priorities go first, equal ones in order of arrival.

    An operation costs the logarithm of the tenant's texts on average, and ``remove`` a look at each
    tenant. Core thread only, except ``len``.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return sum(len(line.requests) for line in list(self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def num_entries(self) -> int:
        """Entries of all heaps, with those for removed texts."""
        return sum(len(line.heap) for line in self._lines.values())

    def add(self, request: EngineRequest) -> None:
        """Put a text at the end of its priority. Its id must be new."""
        line = self._lines.setdefault(request.tenant, _Line())
        heapq.heappush(line.heap, (request.priority, next(self._arrivals), request.request_id))
        line.requests[request.request_id] = request

    def remove(self, request_id: str) -> bool:
        """Drop a text; whether it was waiting."""
        for tenant, line in self._lines.items():
            if line.requests.pop(request_id, None) is not None:
                if not line.requests:
                    del self._lines[tenant]
                elif len(line.heap) > 2 * len(line.requests) + SPARE:
                    line.heap = [entry for entry in line.heap if entry[2] in line.requests]
                    heapq.heapify(line.heap)
                return True
        return False

    def next(self) -> EngineRequest:
        """The text whose turn it is. Raises StopIteration if none waits."""
        line = next(iter(self._lines.values()))
        while line.heap[0][2] not in line.requests:
            heapq.heappop(line.heap)
        return line.requests[line.heap[0][2]]

    def take(self) -> None:
        """Remove the text whose turn it is. The turn passes to the next tenant."""
        request = self.next()
        line = self._lines[request.tenant]
        heapq.heappop(line.heap)
        del line.requests[request.request_id]
        if line.requests:
            self._lines.move_to_end(request.tenant)
        else:
            del self._lines[request.tenant]

    def clear(self) -> list[str]:
        """Remove every text; their ids."""
        ids = [request_id for line in self._lines.values() for request_id in line.requests]
        self._lines.clear()
        return ids
