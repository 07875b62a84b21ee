"""Items of a response while they are generated, and the events that tell of them.

An item yields events when it begins and when it ends, and returns one for each addition. The
events carry the id of the finished item.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias
from uuid import uuid4

from msgspec import UNSET, UnsetType

from core.contract.messages import TokenLogprob
from schemas import responses_events as events
from schemas.logprobs import TokenLogprob as WireLogprob
from schemas.responses_events import ResponseEvent
from schemas.responses_items import (
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)

NextNumber: TypeAlias = Callable[[], int]
"""Returns the next sequence number of the stream."""

WireLogprobs: TypeAlias = Callable[[list[TokenLogprob]], list[WireLogprob]]

SEALED = "roseinfer:"
"""How ``encrypted_content`` begins. The rest is the text in base64: it hides nothing."""


class OpenItem(ABC):
    """An item that is not complete yet. ``index`` is its place in the response's output."""

    id_prefix: ClassVar[str]

    def __init__(self, index: int, next_number: NextNumber) -> None:
        self.id = f"{self.id_prefix}_{uuid4().hex}"
        self._index, self._next_number = index, next_number
        self._pieces: list[str] = []

    @abstractmethod
    def item(self, status: ItemStatus) -> OutputItem:
        """The item with all that was added."""

    def begin(self) -> Iterator[ResponseEvent]:
        """Announce the item."""
        yield self._item_event(events.ItemAdded, self._announced())
        yield from self._begin_part()

    def add(self, text: str) -> ResponseEvent:
        """Add text."""
        self._pieces.append(text)
        return self._delta(text)

    def end(self, item: OutputItem) -> Iterator[ResponseEvent]:
        """The events of its end. ``item`` is the complete item, from ``self.item``."""
        yield from self._end_part(item)
        yield self._item_event(events.ItemDone, item)

    @abstractmethod
    def _announced(self) -> OutputItem:
        """The item as its first event shows it, empty."""

    @abstractmethod
    def _delta(self, text: str) -> ResponseEvent:
        """The event of an addition."""

    def _begin_part(self) -> Iterator[ResponseEvent]:
        yield from ()

    @abstractmethod
    def _end_part(self, _item: OutputItem) -> Iterator[ResponseEvent]:
        """The events before ``ItemDone``."""

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    def _event(self, kind: Callable[..., ResponseEvent], **fields: Any) -> ResponseEvent:
        """An event inside of the item."""
        return kind(
            sequence_number=self._next_number(),
            item_id=self.id,
            output_index=self._index,
            **fields,
        )

    def _item_event(self, kind: Callable[..., ResponseEvent], item: OutputItem) -> ResponseEvent:
        return kind(sequence_number=self._next_number(), output_index=self._index, item=item)


class OpenMessage(OpenItem):
    """A message of the assistant."""

    id_prefix = "msg"

    def __init__(self, index: int, next_number: NextNumber, logprobs: WireLogprobs) -> None:
        super().__init__(index, next_number)
        self._logprobs = logprobs
        self._entries: list[TokenLogprob] = []

    def add_with_logprobs(self, text: str, entries: list[TokenLogprob]) -> ResponseEvent:
        """Add text and the log-probabilities of its tokens."""
        self._pieces.append(text)
        self._entries += entries
        return self._event(events.OutputTextDelta, delta=text, logprobs=self._logprobs(entries))

    def append(self, text: str) -> None:
        """Add text without an event."""
        self._pieces.append(text)

    def delta(self, number: int, text: str) -> ResponseEvent:
        """The event of more text, which is not added."""
        return events.OutputTextDelta(
            sequence_number=number, item_id=self.id, output_index=self._index, delta=text
        )

    def end_of(self, text: str, entries: list[TokenLogprob]) -> int:
        """Where the message would end with this text: an offset in the generated text."""
        first = (self._entries or entries)[0]
        return first.text_offset + sum(map(len, self._pieces)) + len(text)

    def add_logprobs(self, entries: list[TokenLogprob]) -> None:
        """Add the log-probabilities of tokens without text, such as the end token."""
        self._entries += entries

    def item(self, status: ItemStatus) -> MessageItem:
        part = OutputText(text=self._text, logprobs=self._logprobs(self._entries))
        return MessageItem(id=self.id, status=status, role="assistant", content=[part])

    def _announced(self) -> MessageItem:
        return MessageItem(id=self.id, status="in_progress", role="assistant", content=[])

    def _delta(self, text: str) -> ResponseEvent:
        return self.delta(self._next_number(), text)

    def _begin_part(self) -> Iterator[ResponseEvent]:
        yield self._event(events.PartAdded, part=OutputText(text=""))

    def _end_part(self, _item: OutputItem) -> Iterator[ResponseEvent]:
        assert isinstance(_item, MessageItem)
        [part] = _item.content
        assert isinstance(part, OutputText)
        yield self._event(events.OutputTextDone, text=part.text, logprobs=part.logprobs)
        yield self._event(events.PartDone, part=part)


class OpenCall(OpenItem):
    """A call of a function."""

    id_prefix = "fc"

    def __init__(
        self,
        index: int,
        next_number: NextNumber,
        *,
        call_id: str,
        name: str,
        namespace: str | UnsetType,
    ) -> None:
        super().__init__(index, next_number)
        self._call_id, self._name, self._namespace = call_id, name, namespace

    def item(self, status: ItemStatus) -> FunctionCallItem:
        return FunctionCallItem(
            id=self.id,
            call_id=self._call_id,
            name=self._name,
            arguments=self._text,
            status=status,
            namespace=self._namespace,
        )

    def _announced(self) -> FunctionCallItem:
        return self.item("in_progress")

    def _delta(self, text: str) -> ResponseEvent:
        return self._event(events.ArgumentsDelta, delta=text)

    def _end_part(self, _item: OutputItem) -> Iterator[ResponseEvent]:
        yield self._event(events.ArgumentsDone, name=self._name, arguments=self._text)


class OpenReasoning(OpenItem):
    """Reasoning. ``is_sealed``: its text is in ``encrypted_content`` too."""

    id_prefix = "rs"

    def __init__(self, index: int, next_number: NextNumber, *, is_sealed: bool) -> None:
        super().__init__(index, next_number)
        self._is_sealed = is_sealed

    def item(self, status: ItemStatus) -> ReasoningItem:
        return ReasoningItem(
            id=self.id,
            summary=[],
            content=[ReasoningText(text=self._text)],
            encrypted_content=self._encrypted_content(),
            status=status,
        )

    def _announced(self) -> ReasoningItem:
        return ReasoningItem(id=self.id, summary=[], status="in_progress")

    def _delta(self, text: str) -> ResponseEvent:
        return self._event(events.ReasoningDelta, delta=text)

    def _begin_part(self) -> Iterator[ResponseEvent]:
        yield self._event(events.PartAdded, part=ReasoningText(text=""))

    def _end_part(self, _item: OutputItem) -> Iterator[ResponseEvent]:
        yield self._event(events.ReasoningDone, text=self._text)
        yield self._event(events.PartDone, part=ReasoningText(text=self._text))

    def _encrypted_content(self) -> str | UnsetType:
        return sealed(self._text) if self._is_sealed else UNSET


class OpenSummary(OpenReasoning):
    """Reasoning whose text is sent as its summary, because the request asked for one."""

    def item(self, status: ItemStatus) -> ReasoningItem:
        return ReasoningItem(
            id=self.id,
            summary=[SummaryText(text=self._text)],
            encrypted_content=self._encrypted_content(),
            status=status,
        )

    def _delta(self, text: str) -> ResponseEvent:
        return self._event(events.SummaryDelta, delta=text)

    def _begin_part(self) -> Iterator[ResponseEvent]:
        yield self._event(events.SummaryPartAdded, part=SummaryText(text=""))

    def _end_part(self, _item: OutputItem) -> Iterator[ResponseEvent]:
        yield self._event(events.SummaryDone, text=self._text)
        yield self._event(events.SummaryPartDone, part=SummaryText(text=self._text))


def sealed(text: str) -> str:
    """The ``encrypted_content`` of reasoning. ``unsealed`` reads it."""
    return SEALED + base64.b64encode(text.encode()).decode()


def unsealed(content: str) -> str | None:
    """The text of an ``encrypted_content``. None if it is not of this server."""
    if not content.startswith(SEALED):
        return None
    try:
        return base64.b64decode(content.removeprefix(SEALED), validate=True).decode()
    except ValueError:
        return None
