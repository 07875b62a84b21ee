"""ResponseStore: finished responses of POST /v1/responses, for as long as there is room.

item_list: a page of the input items of a stored response.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from core.contract.errors import InvalidRequest
from schemas.responses_items import ItemList
from server.tenants.shelves import Shelves

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


class ResponseStore:
    """Keeps the last responses of each tenant, as Shelves do. Any thread."""

    def __init__(self, max_responses: int, max_bytes: int) -> None:
        """``max_responses`` 0 keeps nothing."""
        self.max_responses, self.max_bytes = max_responses, max_bytes
        self._responses: Shelves[str, StoredResponse] = Shelves(max_responses, max_bytes)
        self._items: dict[tuple[str, str], bytes] = {}
        """Output items by tenant and id."""
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self.max_responses > 0

    def put(self, tenant: str, response: StoredResponse) -> None:
        """Keep a response, unless it is larger than all that may be kept."""
        if not self.is_on or response.size > self.max_bytes:
            return
        kept = response.items[len(response.items) - len(response.output_ids) :]
        with self._lock:
            for item_id, item in zip(response.output_ids, kept, strict=True):
                self._items[tenant, item_id] = item
            for owner, gone in self._responses.put(tenant, response.id, response, response.size):
                self._forget_items(owner, gone)

    def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """A response of the tenant."""
        with self._lock:
            return self._responses.get(tenant, response_id)

    def item(self, tenant: str, item_id: str) -> bytes | None:
        """An output item of one of the tenant's responses."""
        with self._lock:
            return self._items.get((tenant, item_id))

    def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response. Later ones keep their conversation. False: there is none."""
        with self._lock:
            response = self._responses.pop(tenant, response_id)
            if response is None:
                return False
            self._forget_items(tenant, response)
            return True

    def check(self) -> None:
        """Fail unless there are exactly the items of the responses that are kept."""
        with self._lock:
            self._responses.check()
            assert set(self._items) == {
                (tenant, item_id)
                for tenant, response in self._responses.all()
                for item_id in response.output_ids
            }

    def _forget_items(self, tenant: str, response: StoredResponse) -> None:
        for item_id in response.output_ids:
            del self._items[tenant, item_id]


class _Identified(msgspec.Struct):
    id: str


_ids = msgspec.json.Decoder(_Identified)


def item_list(
    items: Sequence[bytes], *, order: Literal["asc", "desc"], after: str | None, limit: int
) -> bytes:
    """The first ``limit`` items behind the one with the id ``after``. Raises InvalidRequest."""
    ordered = items if order == "asc" else items[::-1]
    ids = [_ids.decode(item).id for item in ordered]
    if after is not None:
        if after not in ids:
            raise InvalidRequest(
                f"There is no input item with id '{after[:64]}'.",
                param="after",
                code="invalid_value",
            )
        start = ids.index(after) + 1
        ids, ordered = ids[start:], ordered[start:]
    shown: list[Any] = [msgspec.Raw(item) for item in ordered[:limit]]
    return msgspec.json.encode(
        ItemList(
            data=shown,
            first_id=ids[0] if ids else None,
            last_id=ids[len(shown) - 1] if ids else None,
            has_more=len(ids) > limit,
        )
    )
