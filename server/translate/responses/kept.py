"""What a request takes from stored responses, and what is stored of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from core.contract.errors import InvalidRequest
from schemas.responses import Response
from schemas.responses_input import InputItem
from schemas.responses_request import ResponsesRequest
from server.response_store import ResponseStore, StoredResponse
from server.translate.responses.errors import missing
from server.translate.responses.items import PlacedItem
from server.translate.responses.stored import kept_item, read_item


@dataclass(frozen=True, slots=True)
class Shelf:
    """The stored responses of one tenant."""

    store: ResponseStore
    tenant: str

    def conversation(self, request: ResponsesRequest) -> Conversation:
        """The items of a request and of the responses before it. Raises InvalidRequest."""
        return Conversation(self._earlier(request), self._own(request))

    def keeper(
        self, request: ResponsesRequest, conversation: Conversation
    ) -> Callable[[Response], None] | None:
        """Stores the response of a request. None: it is not to be stored."""
        if request.store is False or not self.store.is_on:
            return None
        inputs = conversation.as_json()

        def keep(response: Response) -> None:
            outputs = [msgspec.json.encode(item) for item in response.output]
            stored = StoredResponse(
                id=response.id,
                body=msgspec.json.encode(response),
                items=(*inputs, *outputs),
                num_inputs=len(inputs),
                output_ids=tuple(item.id for item in response.output),
            )
            self.store.put(self.tenant, stored)

        return keep

    def _earlier(self, request: ResponsesRequest) -> Sequence[bytes]:
        """The conversation of the previous response, its output included."""
        if request.previous_response_id is None:
            return ()
        previous = self.store.get(self.tenant, request.previous_response_id)
        if previous is None:
            raise InvalidRequest(
                f"Previous response with id '{request.previous_response_id[:64]}' not found. "
                + why_not_found(self.store),
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return previous.items

    def _own(self, request: ResponsesRequest) -> list[PlacedItem]:
        """The items of the request, those included that it only names."""
        given = request.input
        if given is None:
            if request.previous_response_id is None:
                raise missing("input")
            return []
        if isinstance(given, str):
            return [PlacedItem(InputItem(role="user", content=given), "input")]
        return [
            PlacedItem(self._resolved(item, f"input[{i}]"), f"input[{i}]")
            for i, item in enumerate(given)
        ]

    def _resolved(self, item: InputItem, path: str) -> InputItem:
        if item.type != "item_reference":
            return item
        if item.id is None:
            raise missing(f"{path}.id")
        data = self.store.item(self.tenant, item.id)
        if data is None:
            raise InvalidRequest(
                f"Item with id '{item.id[:64]}' not found. " + why_not_found(self.store),
                param=f"{path}.id",
                code="item_not_found",
            )
        return read_item(data)


@dataclass(frozen=True, slots=True)
class Conversation:
    """``earlier`` are items as they are stored."""

    earlier: Sequence[bytes]
    own: Sequence[PlacedItem]

    def items(self) -> list[PlacedItem]:
        """All items in order."""
        earlier = [PlacedItem(read_item(data), "previous_response_id") for data in self.earlier]
        return [*earlier, *self.own]

    def as_json(self) -> tuple[bytes, ...]:
        """All items as they are stored. Those without an id get one."""
        return (*self.earlier, *(kept_item(placed.item) for placed in self.own))


def why_not_found(store: ResponseStore) -> str:
    """A sentence for a client that asks for what is not there."""
    if not store.is_on:
        return "This server keeps no responses: send the whole conversation."
    return (
        "It is unknown, was deleted, or has expired: this server keeps the last "
        f"{store.max_responses} responses in memory, not those with store false. Send the whole "
        "conversation instead."
    )
