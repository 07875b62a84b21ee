"""The items of a response, made of the deltas of its choice, and the events that tell of them.

The events carry the id of the finished item.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never
from uuid import uuid4

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from core.contract.messages import SampledLogprob
from schemas import logprobs as wire
from schemas import responses_events as events
from schemas import responses_items as items
from schemas.responses_events import ResponseEvent
from schemas.responses_items import ItemStatus, OutputItem
from schemas.responses_request import ReasoningOptions, ResponsesRequest
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.rendering import sse

NextNumber: TypeAlias = Callable[[], int]
"""Returns the next sequence number of the stream."""

Names: TypeAlias = Mapping[str, tuple[str, str]]
"""Functions in namespaces: from the name that the model knows to namespace and name."""

NewEvent: TypeAlias = Callable[..., ResponseEvent]
WireLogprobs: TypeAlias = Callable[[Sequence[SampledLogprob]], list[wire.TokenLogprob]]

SEALED_REASONING = "reasoning.encrypted_content"
SEALED = "roseinfer:"
"""How ``encrypted_content`` begins. The rest is the text in base64: it hides nothing."""


class OpenItem(ABC):
    """An item that is not complete yet. ``index`` is its place in the response's output."""

    id_prefix: ClassVar[str]
    delta_event: NewEvent
    part: Callable[..., Any] | None = None
    part_added: NewEvent = events.PartAdded

    def __init__(self, index: int, next_number: NextNumber) -> None:
        self.id = f"{self.id_prefix}_{uuid4().hex}"
        self._index, self._next_number = index, next_number
        self._pieces: list[str] = []

    @abstractmethod
    def item(self, status: ItemStatus) -> OutputItem:
        """The item with all that was added. In progress, it is as its first event shows it."""

    @abstractmethod
    def end_part(self, item: Any) -> Iterator[ResponseEvent]:
        """The events in front of ``ItemDone``. ``item`` is the complete item."""

    def begin(self) -> Iterator[ResponseEvent]:
        """Announce the item."""
        yield self._item_event(events.ItemAdded, self.item("in_progress"))
        if self.part is not None:
            yield self._event(self.part_added, part=self.part(text=""))

    def add(self, text: str) -> ResponseEvent:
        """Add text."""
        self._pieces.append(text)
        return self._event(self.delta_event, delta=text)

    def end(self, item: OutputItem) -> Iterator[ResponseEvent]:
        """The events of its end. ``item`` is the complete item, from ``self.item``."""
        yield from self.end_part(item)
        yield self._item_event(events.ItemDone, item)

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    def _event(self, kind: NewEvent, **fields: Any) -> ResponseEvent:
        """An event inside of the item."""
        number = self._next_number()
        return kind(sequence_number=number, item_id=self.id, output_index=self._index, **fields)

    def _item_event(self, kind: NewEvent, item: OutputItem) -> ResponseEvent:
        return kind(sequence_number=self._next_number(), output_index=self._index, item=item)


class OpenMessage(OpenItem):
    """A message of the assistant."""

    id_prefix, delta_event, part = "msg", events.OutputTextDelta, items.OutputText

    def __init__(self, index: int, next_number: NextNumber, logprobs: WireLogprobs) -> None:
        super().__init__(index, next_number)
        self._logprobs = logprobs
        self._entries: list[SampledLogprob] = []
        self._number_at = b""
        self._template: sse.Template | None = None

    def add_with_logprobs(self, text: str, waiting: list[SampledLogprob]) -> ResponseEvent:
        """Add text, and those of the entries that belong to it: they are removed."""
        first = (self._entries or waiting)[0]
        end = first.text_offset + sum(map(len, self._pieces)) + len(text)
        added = [entry for entry in waiting if entry.text_offset < end]
        del waiting[: len(added)]
        self._pieces.append(text)
        self.add_logprobs(added)
        return self._event(self.delta_event, delta=text, logprobs=self._logprobs(added))

    def add_logprobs(self, entries: Sequence[SampledLogprob]) -> None:
        """Add the log-probabilities of tokens without text, such as the end token."""
        self._entries += entries

    def more_text(self, text: str) -> bytes:
        """Add text without log-probabilities. Returns its frame, encoded once and filled."""
        if self._template is None:
            event = events.OutputTextDelta(
                sequence_number=0, item_id=self.id, output_index=self._index, delta=sse.PLACEHOLDER
            )
            frame = sse.named_frame(events.name_of(event), event)
            before, number, after = frame.partition(b'"sequence_number":0')
            assert number
            self._number_at = before + b'"sequence_number":'
            self._template = sse.Template(after)
        self._pieces.append(text)
        return self._number_at + b"%d" % self._next_number() + self._template.fill(text)

    def item(self, status: ItemStatus) -> items.MessageItem:
        part = items.OutputText(text=self._text, logprobs=self._logprobs(self._entries))
        return items.MessageItem(
            id=self.id,
            status=status,
            role="assistant",
            content=[] if status == "in_progress" else [part],
        )

    def end_part(self, item: items.MessageItem) -> Iterator[ResponseEvent]:
        [part] = item.content
        assert isinstance(part, items.OutputText)
        yield self._event(events.OutputTextDone, text=part.text, logprobs=part.logprobs)
        yield self._event(events.PartDone, part=part)


class OpenCall(OpenItem):
    """A call of a function."""

    id_prefix, delta_event = "fc", events.ArgumentsDelta

    def __init__(self, index: int, next_number: NextNumber, call: CallBegin, names: Names) -> None:
        super().__init__(index, next_number)
        self._call_id = call.id
        self._namespace: str | UnsetType
        self._namespace, self._name = names.get(call.name, (UNSET, call.name))

    def item(self, status: ItemStatus) -> items.FunctionCallItem:
        return items.FunctionCallItem(
            id=self.id,
            call_id=self._call_id,
            name=self._name,
            arguments=self._text,
            status=status,
            namespace=self._namespace,
        )

    def end_part(self, item: items.FunctionCallItem) -> Iterator[ResponseEvent]:
        yield self._event(events.ArgumentsDone, name=item.name, arguments=item.arguments)


class OpenReasoning(OpenItem):
    """Reasoning. ``is_sealed``: its text is in ``encrypted_content`` too."""

    id_prefix = "rs"
    delta_event: NewEvent = events.ReasoningDelta
    part: Callable[..., Any] = items.ReasoningText
    text_done: NewEvent = events.ReasoningDone
    part_done: NewEvent = events.PartDone

    def __init__(self, index: int, next_number: NextNumber, *, is_sealed: bool) -> None:
        super().__init__(index, next_number)
        self._is_sealed = is_sealed

    def item(self, status: ItemStatus) -> items.ReasoningItem:
        if status == "in_progress":
            return items.ReasoningItem(id=self.id, summary=[], status=status)
        return items.ReasoningItem(
            id=self.id,
            summary=[],
            content=[items.ReasoningText(text=self._text)],
            encrypted_content=sealed(self._text) if self._is_sealed else UNSET,
            status=status,
        )

    def end_part(self, _item: items.ReasoningItem) -> Iterator[ResponseEvent]:
        yield self._event(self.text_done, text=self._text)
        yield self._event(self.part_done, part=self.part(text=self._text))


class OpenSummary(OpenReasoning):
    """Reasoning whose text is sent as its summary, because the request asked for one."""

    delta_event, part = events.SummaryDelta, items.SummaryText
    part_added, text_done = events.SummaryPartAdded, events.SummaryDone
    part_done = events.SummaryPartDone

    def item(self, status: ItemStatus) -> items.ReasoningItem:
        item = super().item(status)
        if status == "in_progress":
            return item
        return replace(item, summary=[items.SummaryText(text=self._text)], content=UNSET)


class Output:
    """Turns deltas into items. Methods with events must be read to their end."""

    def __init__(
        self,
        request: ResponsesRequest,
        names: Names,
        next_number: NextNumber,
        logprobs: WireLogprobs,
    ) -> None:
        self.items: list[OutputItem] = []
        """The complete items."""
        self._names, self._next_number, self._logprobs = names, next_number, logprobs
        self._is_sealed = SEALED_REASONING in (request.include or ())
        options = request.reasoning or ReasoningOptions()
        has_summary = options.summary or options.generate_summary
        self._reasoning_type = OpenSummary if has_summary else OpenReasoning
        self._open: OpenItem | None = None
        self._has_calls = False
        self._entries: list[SampledLogprob] = []
        """Log-probabilities of tokens whose text no message has yet. Empty after a call."""

    def feed(
        self, deltas: Sequence[Delta], entries: Sequence[SampledLogprob]
    ) -> Iterator[ResponseEvent]:
        """The events of an output. ``entries`` are the log-probabilities of its answer's tokens."""
        if not self._has_calls:
            self._entries += entries
        for delta in deltas:
            match delta:
                case Content(text):
                    if not isinstance(self._open, OpenMessage):
                        yield from self._begin(self._message())
                    assert isinstance(self._open, OpenMessage)
                    if self._entries:
                        yield self._open.add_with_logprobs(text, self._entries)
                    else:
                        yield self._open.add(text)
                case Reasoning(text):
                    if not isinstance(self._open, OpenReasoning):
                        kind, is_sealed = self._reasoning_type, self._is_sealed
                        item = kind(self._index, self._next_number, is_sealed=is_sealed)
                        yield from self._begin(item)
                    assert self._open is not None
                    yield self._open.add(text)
                case CallBegin():
                    self._has_calls = True
                    self._entries.clear()  # those of the markup belong to no text
                    call = OpenCall(self._index, self._next_number, delta, self._names)
                    yield from self._begin(call)
                case CallArguments(_, text):
                    assert isinstance(self._open, OpenCall)
                    yield self._open.add(text)
                case _:
                    assert_never(delta)

    def more_text(self, text: str) -> bytes | None:
        """The frame of text that goes on with the open message. None: there is none."""
        return self._open.more_text(text) if isinstance(self._open, OpenMessage) else None

    def end(self, *, is_cut: bool) -> Iterator[ResponseEvent]:
        """End the last item. A response without any gets an empty message."""
        if self._open is None and not self.items:
            yield from self._begin(self._message())
        yield from self._close("incomplete" if is_cut else "completed")

    def fail(self) -> Iterator[ResponseEvent]:
        """End an open item as it is, incomplete."""
        yield from self._close("incomplete")

    @property
    def _index(self) -> int:
        """The place of the next item."""
        return len(self.items) + (self._open is not None)

    def _begin(self, item: OpenItem) -> Iterator[ResponseEvent]:
        yield from self._close("completed")
        self._open = item
        yield from item.begin()

    def _close(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        if self._open is None:
            return
        closed, self._open = self._open, None
        if isinstance(closed, OpenMessage):
            closed.add_logprobs(self._entries)
        item = closed.item(status)
        self.items.append(item)
        yield from closed.end(item)

    def _message(self) -> OpenMessage:
        return OpenMessage(self._index, self._next_number, self._logprobs)


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
