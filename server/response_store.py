"""ResponseStore: finished responses of POST /v1/responses, for as long as there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

OVERHEAD = 1024
"""Bytes that an entry costs besides what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response, and its conversation as JSON: ``num_inputs`` items of input, then its output."""

    id: str
    body: bytes
    items: tuple[bytes, ...]
    num_inputs: int
    output_ids: tuple[str, ...]
    """Ids of the output's items, which are the last of ``items``."""

    num_item_bytes: int = field(init=False)
    """Bytes of all items."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_item_bytes", sum(map(len, self.items)))

    @property
    def size(self) -> int:
        """Bytes. Items that are shared with other responses count for each."""
        return OVERHEAD + len(self.body) + self.num_item_bytes + 8 * len(self.items)


@dataclass(slots=True)
class _Shelf:
    """The responses of one tenant, oldest first."""

    responses: OrderedDict[str, StoredResponse] = field(default_factory=OrderedDict)
    items: dict[str, bytes] = field(default_factory=dict)
    """Output items by id."""
    num_bytes: int = 0


class ResponseStore:
    """Keeps the last responses of each tenant, up to two limits of all together. Any thread.

    Of too many responses, the tenant with the most gives up its oldest; of too many bytes, the
    tenant with the most bytes.
    """

    def __init__(self, max_responses: int, max_bytes: int) -> None:
        """``max_responses`` 0 keeps nothing."""
        self.max_responses, self.max_bytes = max_responses, max_bytes
        self._shelves: dict[str, _Shelf] = {}
        self._num_responses = self._num_bytes = 0
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self.max_responses > 0

    def put(self, tenant: str, response: StoredResponse) -> None:
        """Keep a response, unless it is larger than all that may be kept."""
        if not self.is_on or response.size > self.max_bytes:
            return
        with self._lock:
            shelf = self._shelves.setdefault(tenant, _Shelf())
            shelf.responses[response.id] = response
            kept = response.items[len(response.items) - len(response.output_ids) :]
            shelf.items.update(zip(response.output_ids, kept, strict=True))
            self._count(shelf, response, 1)
            while self._num_responses > self.max_responses:
                self._drop_oldest_of(max(self._shelves, key=self._num_responses_of))
            while self._num_bytes > self.max_bytes:
                self._drop_oldest_of(max(self._shelves, key=self._num_bytes_of))

    def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """A response of the tenant."""
        with self._lock:
            shelf = self._shelves.get(tenant)
            return None if shelf is None else shelf.responses.get(response_id)

    def item(self, tenant: str, item_id: str) -> bytes | None:
        """An output item of one of the tenant's responses."""
        with self._lock:
            shelf = self._shelves.get(tenant)
            return None if shelf is None else shelf.items.get(item_id)

    def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response. Later ones keep their conversation. False: there is none."""
        with self._lock:
            shelf = self._shelves.get(tenant)
            if shelf is None or response_id not in shelf.responses:
                return False
            self._drop(tenant, shelf, response_id)
            return True

    def _num_responses_of(self, tenant: str) -> int:
        return len(self._shelves[tenant].responses)

    def _num_bytes_of(self, tenant: str) -> int:
        return self._shelves[tenant].num_bytes

    def _drop_oldest_of(self, tenant: str) -> None:
        shelf = self._shelves[tenant]
        self._drop(tenant, shelf, next(iter(shelf.responses)))

    def _drop(self, tenant: str, shelf: _Shelf, response_id: str) -> None:
        response = shelf.responses.pop(response_id)
        for item_id in response.output_ids:
            del shelf.items[item_id]
        self._count(shelf, response, -1)
        if not shelf.responses:
            del self._shelves[tenant]

    def _count(self, shelf: _Shelf, response: StoredResponse, sign: int) -> None:
        self._num_responses += sign
        self._num_bytes += sign * response.size
        shelf.num_bytes += sign * response.size
