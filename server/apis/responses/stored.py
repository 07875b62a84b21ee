"""Items as they are kept: JSON with an id, read again as input items of a later request.

What a request takes from stored responses, and what is stored of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import UNSET

from core.contract.errors import InvalidRequest
from schemas.messages import RefusalPart
from schemas.responses import Response
from schemas.responses_input import InputContent, InputItem, ReasoningTextPart, SummaryTextPart
from schemas.responses_items import (
    AnyItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputText,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    SummaryText,
)
from schemas.responses_request import ResponsesRequest
from server.admission.pools import checkpoint
from server.apis.responses.errors import missing
from server.apis.responses.input_items import PlacedItem
from server.apis.responses.store import ResponseStore, StoredResponse

_decoder = msgspec.json.Decoder(InputItem)


def read_item(data: bytes) -> InputItem:
    """An item that was kept."""
    return _decoder.decode(data)


def kept_item(item: InputItem) -> bytes:
    """An item of a request that has been translated. One without an id gets one."""
    return msgspec.json.encode(_wire(item))


def _wire(item: InputItem) -> AnyItem:
    match item.type:
        case "function_call":
            return FunctionCallItem(
                id=item.id or _new_id("fc"),
                call_id=item.call_id or "",
                name=item.name or "",
                arguments=item.arguments or "",
                status="completed",
                namespace=item.namespace or UNSET,
            )
        case "function_call_output":
            output = item.output or ""
            return FunctionCallOutputItem(
                id=item.id or _new_id("fco"),
                call_id=item.call_id or "",
                output=output if isinstance(output, str) else _input_texts(output),
                status="completed",
            )
        case "reasoning":
            return ReasoningItem(
                id=item.id or _new_id("rs"),
                summary=[
                    SummaryText(text=part.text)
                    for part in item.summary or ()
                    if isinstance(part, SummaryTextPart)
                ],
                content=_reasoning_texts(item.content),
                encrypted_content=item.encrypted_content or UNSET,
            )
        case _:
            role = item.role or "user"
            return MessageItem(
                id=item.id or _new_id("msg"),
                status="completed",
                role=role,
                content=_message_parts(item.content, is_output=role == "assistant"),
                phase=item.phase or UNSET,
            )


def _message_parts(
    content: InputContent | None, *, is_output: bool
) -> list[OutputText | InputText | Refusal]:
    kind = OutputText if is_output else InputText
    if content is None or isinstance(content, str):
        return [kind(text=content or "")]
    return [
        Refusal(refusal=part.refusal) if isinstance(part, RefusalPart) else kind(text=part.text)
        for part in content
        if hasattr(part, "text") or isinstance(part, RefusalPart)
    ]


def _input_texts(content: Sequence[Any]) -> list[InputText]:
    return [InputText(text=part.text) for part in content if hasattr(part, "text")]


def _reasoning_texts(content: InputContent | None) -> Any:
    if content is None:
        return UNSET
    if isinstance(content, str):
        return [ReasoningText(text=content)]
    return [
        ReasoningText(text=part.text) for part in content if isinstance(part, ReasoningTextPart)
    ]


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The stored responses of one tenant."""

    store: ResponseStore
    tenant: str

    def num_stored_bytes(self, request: ResponsesRequest, limit: int) -> int:
        """Bytes of stored items that a request brings in. Raises InvalidRequest above ``limit``.

        An item counts as often as it is named. Ids that are not found are left to
        ``conversation``. It reads no item, so it is fast enough for the event loop.
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

    def conversation(self, request: ResponsesRequest) -> StoredConversation:
        """The items of a request and of the responses before it. Raises InvalidRequest."""
        return StoredConversation(self._earlier(request), self._own(request))

    def keeper(
        self, request: ResponsesRequest, conversation: StoredConversation
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
        found: dict[str, InputItem] = {}
        return [
            PlacedItem(self._resolved(item, f"input[{i}]", found), f"input[{i}]")
            for i, item in enumerate(given)
        ]

    def _resolved(self, item: InputItem, path: str, found: dict[str, InputItem]) -> InputItem:
        """The item that a reference names. Items that were ``found`` are not read again."""
        if item.type != "item_reference":
            return item
        checkpoint()
        if item.id in found:
            return found[item.id]
        if item.id is None:
            raise missing(f"{path}.id")
        data = self.store.item(self.tenant, item.id)
        if data is None:
            raise InvalidRequest(
                f"Item with id '{item.id[:64]}' not found. " + why_not_found(self.store),
                param=f"{path}.id",
                code="item_not_found",
            )
        found[item.id] = read_item(data)
        return found[item.id]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """``earlier`` are items as they are stored."""

    earlier: Sequence[bytes]
    own: Sequence[PlacedItem]

    def items(self) -> list[PlacedItem]:
        """All items in order."""
        items = []
        for data in self.earlier:
            checkpoint()
            items.append(PlacedItem(read_item(data), "previous_response_id"))
        return [*items, *self.own]

    def as_json(self) -> tuple[bytes, ...]:
        """All items as they are stored. Those without an id get one."""
        own = []
        for placed in self.own:
            checkpoint()
            own.append(kept_item(placed.item))
        return (*self.earlier, *own)


def why_not_found(store: ResponseStore) -> str:
    """A sentence for a client that asks for what is not there."""
    if not store.is_on:
        return "This server keeps no responses: send the whole conversation."
    return (
        "It is unknown, was deleted, or has expired: this server keeps the last "
        f"{store.max_responses} responses in memory, not those with store false. Send the whole "
        "conversation instead."
    )
