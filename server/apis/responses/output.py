"""Output: the items of one response, made of the deltas of its choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from msgspec import UNSET

from core.contract.messages import TokenLogprob
from schemas.responses_events import ResponseEvent, name_of
from schemas.responses_items import ItemStatus, OutputItem
from server.apis.responses.items import (
    NextNumber,
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
    OpenSummary,
    WireLogprobs,
)
from server.http import sse
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOptions:
    """How items are shown.

    ``names`` are those of functions in namespaces: from the name that the model knows to namespace
    and name. ``summarises`` and ``seals`` say where the text of reasoning is.
    """

    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    summarises: bool = False
    seals: bool = False


class TextFrames:
    """Frames of more text of one message, without log-probabilities: encoded once and filled."""

    def __init__(self, message: OpenMessage) -> None:
        event = message.delta(0, sse.PLACEHOLDER)
        frame = sse.named_frame(name_of(event), event)
        before, number, after = frame.partition(b'"sequence_number":0')
        assert number
        self._message, self._before = message, before + b'"sequence_number":'
        self._template = sse.Template(after)

    def add(self, text: str, number: int) -> bytes:
        """Add text to the message; returns the frame of this."""
        self._message.append(text)
        return self._before + b"%d" % number + self._template.fill(text)


class Output:
    """Turns deltas into items. Methods with events must be read to their end."""

    def __init__(
        self, options: ItemOptions, next_number: NextNumber, logprobs: WireLogprobs
    ) -> None:
        self.items: list[OutputItem] = []
        """The complete items."""
        self._options, self._next_number, self._logprobs = options, next_number, logprobs
        self._open: OpenItem | None = None
        self._frames: TextFrames | None = None
        self._has_calls = False
        self._entries: list[TokenLogprob] = []
        """Log-probabilities of tokens whose text no message has yet. Empty after a call."""

    def feed(
        self, deltas: Sequence[Delta], entries: Sequence[TokenLogprob]
    ) -> Iterator[ResponseEvent]:
        """The events of an output. ``entries`` are the log-probabilities of its answer's tokens."""
        if not self._has_calls:
            self._entries += entries
        for delta in deltas:
            match delta:
                case Content(text):
                    if not isinstance(self._open, OpenMessage):
                        yield from self._begin(
                            OpenMessage(self._index, self._next_number, self._logprobs)
                        )
                    yield self._add_text(text)
                case Reasoning(text):
                    if not isinstance(self._open, OpenReasoning):
                        yield from self._begin(self._new_reasoning())
                    assert self._open is not None
                    yield self._open.add(text)
                case CallBegin(_, call_id, name):
                    yield from self._begin(self._new_call(call_id, name))
                    self._has_calls = True
                    self._entries.clear()  # those of the markup belong to no text
                case CallArguments(_, text):
                    assert isinstance(self._open, OpenCall)
                    yield self._open.add(text)
                case _:
                    assert_never(delta)

    def more_text(self, text: str) -> bytes | None:
        """The frame of text that goes on with the open message. None: there is none."""
        if not isinstance(self._open, OpenMessage):
            return None
        if self._frames is None:
            self._frames = TextFrames(self._open)
        return self._frames.add(text, self._next_number())

    def end(self, *, is_cut: bool) -> Iterator[ResponseEvent]:
        """End the last item. A response without any gets an empty message."""
        if self._open is None and not self.items:
            yield from self._begin(OpenMessage(self._index, self._next_number, self._logprobs))
        yield from self._end_open("incomplete" if is_cut else "completed")

    def fail(self) -> Iterator[ResponseEvent]:
        """End an open item as it is, incomplete."""
        yield from self._end_open("incomplete")

    def _end_open(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        if isinstance(self._open, OpenMessage):
            self._open.add_logprobs(self._entries)
        yield from self._close(status)

    @property
    def _index(self) -> int:
        """The place of the next item."""
        return len(self.items) + (self._open is not None)

    def _add_text(self, text: str) -> ResponseEvent:
        assert isinstance(self._open, OpenMessage)
        if not self._entries:
            return self._open.add(text)
        end = self._open.end_of(text, self._entries)
        added = [entry for entry in self._entries if entry.text_offset < end]
        del self._entries[: len(added)]
        return self._open.add_with_logprobs(text, added)

    def _begin(self, item: OpenItem) -> Iterator[ResponseEvent]:
        yield from self._close("completed")
        self._open = item
        yield from item.begin()

    def _close(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        if self._open is None:
            return
        closed, self._open, self._frames = self._open, None, None
        item = closed.item(status)
        self.items.append(item)
        yield from closed.end(item)

    def _new_reasoning(self) -> OpenReasoning:
        kind = OpenSummary if self._options.summarises else OpenReasoning
        return kind(self._index, self._next_number, is_sealed=self._options.seals)

    def _new_call(self, call_id: str, name: str) -> OpenCall:
        namespace, own_name = self._options.names.get(name, (UNSET, name))
        return OpenCall(
            self._index, self._next_number, call_id=call_id, name=own_name, namespace=namespace
        )
