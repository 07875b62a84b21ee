"""Finished responses of POST /v1/responses: kept, listed, and gone on with by later requests.

Items are kept as JSON with an id, and read again as input items.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET

from core.contract.errors import InvalidRequest
from schemas import responses_items as wire
from schemas.messages import Part, RefusalPart
from schemas.responses import Response
from schemas.responses_input import InputContent, InputItem, ReasoningTextPart, SummaryTextPart
from schemas.responses_request import ResponsesRequest
from server.apis.responses.errors import given
from server.http.errors import missing
from server.tenants.shelves import Shelves
from server.workers.pools import checkpoint

T = TypeVar("T")

OVERHEAD = 1024
"""Bytes that an entry costs besides what it holds."""


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """A response, and its conversation as JSON: the items of its input, then its output."""

    id: str
    body: bytes
    items: tuple[bytes, ...]
    output_ids: tuple[str, ...]
    """Ids of the output's items, which are the last of ``items``."""

    @cached_property
    def num_item_bytes(self) -> int:
        """Bytes of all items."""
        return sum(map(len, self.items))

    @property
    def num_inputs(self) -> int:
        return len(self.items) - len(self.output_ids)

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
        kept = response.items[response.num_inputs :]
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

    def not_found(self, what: str, id_: str) -> str:
        """Sentences for a client that asks for what is not there."""
        why = (
            "It is unknown, was deleted, or has expired: this server keeps the last "
            f"{self.max_responses} responses in memory, not those with store false. Send the whole "
            "conversation instead."
        )
        if not self.is_on:
            why = "This server keeps no responses: send the whole conversation."
        return f"{what} with id '{id_[:64]}' not found. {why}"

    def _forget_items(self, tenant: str, response: StoredResponse) -> None:
        for item_id in response.output_ids:
            del self._items[tenant, item_id]


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item, its path in the client's body, and its JSON if an earlier response kept it."""

    item: InputItem
    path: str
    kept: bytes | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """The stored responses of one tenant."""

    store: ResponseStore
    tenant: str

    def num_stored_bytes(self, request: ResponsesRequest, limit: int) -> int:
        """Bytes of stored items that a request brings in. Raises InvalidRequest above ``limit``.

        An item counts as often as it is named. Ids that are not found are left to ``items``. It
        reads no item, so it is fast enough for the event loop.
        """
        total, param = 0, "input"
        if request.previous_response_id is not None:
            previous = self.store.get(self.tenant, request.previous_response_id)
            if previous is not None:
                total, param = previous.num_item_bytes, "previous_response_id"
        if isinstance(request.input, list):
            for item in request.input:
                if item.type == "item_reference" and item.id is not None:
                    total += len(self.store.item(self.tenant, item.id) or b"")
        if total > limit:
            raise InvalidRequest(
                f"The stored items that this request refers to have {total} bytes; this server "
                f"takes at most {limit} bytes, as of a body. Refer to fewer items.",
                param=param,
                code="stored_items_too_large",
            )
        return total

    def items(self, request: ResponsesRequest) -> list[PlacedItem]:
        """The items of the responses before a request, and its own. Raises InvalidRequest."""
        previous_id, own = request.previous_response_id, request.input
        if own is None and previous_id is None:
            raise missing("input")
        items: list[PlacedItem] = []
        if previous_id is not None:
            previous = self.store.get(self.tenant, previous_id)
            if previous is None:
                raise InvalidRequest(
                    self.store.not_found("Previous response", previous_id),
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            for data in previous.items:
                checkpoint()
                items.append(PlacedItem(read_item(data), "previous_response_id", data))
        if isinstance(own, str):
            return [*items, PlacedItem(InputItem(role="user", content=own), "input")]
        found: dict[str, InputItem] = {}
        for i, item in enumerate(own or ()):
            path = f"input[{i}]"
            items.append(PlacedItem(self._resolved(item, f"{path}.id", found), path))
        return items

    def keeper(
        self, request: ResponsesRequest, items: Sequence[PlacedItem]
    ) -> Callable[[Response], None] | None:
        """Stores the response of a request. None: it is not to be stored."""
        if request.store is False or not self.store.is_on:
            return None
        inputs = kept_items(items)

        def keep(response: Response) -> None:
            outputs = [msgspec.json.encode(item) for item in response.output]
            stored = StoredResponse(
                id=response.id,
                body=msgspec.json.encode(response),
                items=(*inputs, *outputs),
                output_ids=tuple(item.id for item in response.output),
            )
            self.store.put(self.tenant, stored)

        return keep

    def _resolved(self, item: InputItem, param: str, found: dict[str, InputItem]) -> InputItem:
        """The item that a reference names. Items that were ``found`` are not read again."""
        if item.type != "item_reference":
            return item
        checkpoint()
        item_id = given(item.id, param)
        if item_id not in found:
            data = self.store.item(self.tenant, item_id)
            if data is None:
                raise InvalidRequest(
                    self.store.not_found("Item", item_id), param=param, code="item_not_found"
                )
            found[item_id] = read_item(data)
        return found[item_id]


read_item = msgspec.json.Decoder(InputItem).decode
"""Decodes an item that was kept."""


def kept_items(items: Iterable[PlacedItem]) -> list[bytes]:
    """The items as they are stored."""
    result = []
    for placed in items:
        checkpoint()
        result.append(placed.kept or msgspec.json.encode(kept_item(placed.item)))
    return result


def kept_item(item: InputItem) -> wire.AnyItem:
    """An item of a request that has been translated. One without an id gets one."""
    match item.type:
        case "function_call":
            return wire.FunctionCallItem(
                id=item.id or _new_id("fc"),
                call_id=item.call_id or "",
                name=item.name or "",
                arguments=item.arguments or "",
                status="completed",
                namespace=item.namespace or UNSET,
            )
        case "function_call_output":
            output = item.output or ""
            return wire.FunctionCallOutputItem(
                id=item.id or _new_id("fco"),
                call_id=item.call_id or "",
                output=output if isinstance(output, str) else _texts(wire.InputText, output),
                status="completed",
            )
        case "reasoning":
            return wire.ReasoningItem(
                id=item.id or _new_id("rs"),
                summary=_texts(wire.SummaryText, item.summary, only=SummaryTextPart),
                content=UNSET
                if item.content is None
                else _texts(wire.ReasoningText, item.content, only=ReasoningTextPart),
                encrypted_content=item.encrypted_content or UNSET,
            )
        case _:
            return wire.MessageItem(
                id=item.id or _new_id("msg"),
                status="completed",
                role=item.role or "user",
                content=_message_parts(item),
                phase=item.phase or UNSET,
            )


def _message_parts(item: InputItem) -> list[wire.OutputText | wire.InputText | wire.Refusal]:
    kind = wire.OutputText if item.role == "assistant" else wire.InputText
    if isinstance(item.content, str):
        return [kind(text=item.content)]
    return [
        wire.Refusal(refusal=part.refusal)
        if isinstance(part, RefusalPart)
        else kind(text=part.text)
        for part in item.content or ()
        if isinstance(part, RefusalPart) or hasattr(part, "text")
    ]


def _texts(kind: Callable[..., T], content: InputContent | None, only: type = Part) -> list[T]:
    """The texts of the parts of the type ``only``, each as a ``kind``."""
    if isinstance(content, str):
        return [kind(text=content)]
    return [
        kind(text=part.text)
        for part in content or ()
        if isinstance(part, only) and hasattr(part, "text")
    ]


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"


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
        wire.ItemList(
            data=shown,
            first_id=ids[0] if ids else None,
            last_id=ids[len(shown) - 1] if ids else None,
            has_more=len(ids) > limit,
        )
    )
