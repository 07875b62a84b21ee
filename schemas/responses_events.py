"""Events of a streamed response (OpenAI API reference, responses, streaming).

`sequence_number` counts the events of a stream from 0. `output_index` is the item's place in the
response's `output`, whose items have the same ids.
"""

from msgspec import field

from schemas.base import ResponseModel
from schemas.logprobs import TokenLogprob
from schemas.responses import Response
from schemas.responses_items import (
    FunctionCallItem,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)


class ResponseEvent(ResponseModel, tag_field="type", frozen=True, kw_only=True):
    """Base of events."""

    sequence_number: int


class LifecycleEvent(ResponseEvent, frozen=True, kw_only=True):
    """Base of events with the whole response so far."""

    response: Response


class ResponseCreated(LifecycleEvent, tag="response.created", frozen=True, kw_only=True):
    """The first event."""


class ResponseInProgress(LifecycleEvent, tag="response.in_progress", frozen=True, kw_only=True):
    """The second event."""


class ResponseCompleted(LifecycleEvent, tag="response.completed", frozen=True, kw_only=True):
    """The last event of a response that has come to its end."""


class ResponseIncomplete(LifecycleEvent, tag="response.incomplete", frozen=True, kw_only=True):
    """The last event of a response that a limit of tokens has cut."""


class ResponseFailed(LifecycleEvent, tag="response.failed", frozen=True, kw_only=True):
    """The last event of a response that cannot go on."""


class ItemAdded(ResponseEvent, tag="response.output_item.added", frozen=True, kw_only=True):
    """An item begins."""

    output_index: int
    item: MessageItem | FunctionCallItem | ReasoningItem


class ItemDone(ResponseEvent, tag="response.output_item.done", frozen=True, kw_only=True):
    """An item is complete, or was cut."""

    output_index: int
    item: MessageItem | FunctionCallItem | ReasoningItem


class InItem(ResponseEvent, frozen=True, kw_only=True):
    """Base of events inside of an item."""

    item_id: str
    output_index: int


class PartAdded(InItem, tag="response.content_part.added", frozen=True, kw_only=True):
    """A part of a message or of reasoning begins."""

    content_index: int = 0
    part: OutputText | ReasoningText


class PartDone(InItem, tag="response.content_part.done", frozen=True, kw_only=True):
    """A part is complete."""

    content_index: int = 0
    part: OutputText | ReasoningText


class OutputTextDelta(InItem, tag="response.output_text.delta", frozen=True, kw_only=True):
    """More text."""

    content_index: int = 0
    delta: str
    logprobs: list[TokenLogprob] = field(default_factory=list)


class OutputTextDone(InItem, tag="response.output_text.done", frozen=True, kw_only=True):
    """All of the text."""

    content_index: int = 0
    text: str
    logprobs: list[TokenLogprob] = field(default_factory=list)


class ReasoningDelta(InItem, tag="response.reasoning_text.delta", frozen=True, kw_only=True):
    """More reasoning."""

    content_index: int = 0
    delta: str


class ReasoningDone(InItem, tag="response.reasoning_text.done", frozen=True, kw_only=True):
    """All of the reasoning."""

    content_index: int = 0
    text: str


class SummaryPartAdded(
    InItem, tag="response.reasoning_summary_part.added", frozen=True, kw_only=True
):
    """A summary of reasoning begins."""

    summary_index: int = 0
    part: SummaryText


class SummaryPartDone(
    InItem, tag="response.reasoning_summary_part.done", frozen=True, kw_only=True
):
    """A summary is complete."""

    summary_index: int = 0
    part: SummaryText


class SummaryDelta(InItem, tag="response.reasoning_summary_text.delta", frozen=True, kw_only=True):
    """More of a summary."""

    summary_index: int = 0
    delta: str


class SummaryDone(InItem, tag="response.reasoning_summary_text.done", frozen=True, kw_only=True):
    """All of a summary."""

    summary_index: int = 0
    text: str


class ArgumentsDelta(
    InItem, tag="response.function_call_arguments.delta", frozen=True, kw_only=True
):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done", frozen=True, kw_only=True):
    """All of a call's arguments."""

    name: str
    arguments: str


ALL_EVENTS = (
    ResponseCreated,
    ResponseInProgress,
    ItemAdded,
    PartAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    SummaryPartAdded,
    SummaryDelta,
    SummaryDone,
    SummaryPartDone,
    ArgumentsDelta,
    ArgumentsDone,
    PartDone,
    ItemDone,
    ResponseCompleted,
    ResponseIncomplete,
    ResponseFailed,
)


def name_of(event: ResponseEvent) -> str:
    """The event's `type` on the wire."""
    return str(event.__struct_config__.tag)
