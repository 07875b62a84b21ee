"""Items of a response and of its input, as GET and POST /v1/responses return them."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from schemas.base import ResponseModel
from schemas.logprobs import TokenLogprob

JsonValue: TypeAlias = dict[str, Any]
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class OutputText(ResponseModel, tag_field="type", tag="output_text", frozen=True, kw_only=True):
    """Text of the assistant. There are no annotations. `logprobs` is empty unless requested."""

    text: str
    annotations: list[JsonValue] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


class InputText(ResponseModel, tag_field="type", tag="input_text", frozen=True, kw_only=True):
    """Text of the user, or instructions."""

    text: str


class Refusal(ResponseModel, tag_field="type", tag="refusal", frozen=True, kw_only=True):
    """A refusal of an earlier turn."""

    refusal: str


class ReasoningText(
    ResponseModel, tag_field="type", tag="reasoning_text", frozen=True, kw_only=True
):
    """The reasoning itself."""

    text: str


class SummaryText(ResponseModel, tag_field="type", tag="summary_text", frozen=True, kw_only=True):
    """The reasoning as a summary."""

    text: str


class MessageItem(ResponseModel, tag_field="type", tag="message", frozen=True, kw_only=True):
    """A message: of the answer, or of the input."""

    id: str
    status: ItemStatus
    role: Literal["user", "assistant", "system", "developer"]
    content: list[OutputText | InputText | Refusal]
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class FunctionCallItem(
    ResponseModel, tag_field="type", tag="function_call", frozen=True, kw_only=True
):
    """A call of a function. `call_id` is what the output of the call refers to."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | UnsetType = UNSET


class FunctionCallOutputItem(
    ResponseModel, tag_field="type", tag="function_call_output", frozen=True, kw_only=True
):
    """What a called function returned."""

    id: str
    call_id: str
    output: str | list[InputText]
    status: ItemStatus


class ReasoningItem(ResponseModel, tag_field="type", tag="reasoning", frozen=True, kw_only=True):
    """The model's reasoning: in `summary` if a summary was requested, else in `content`."""

    id: str
    summary: list[SummaryText]
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


OutputItem: TypeAlias = MessageItem | FunctionCallItem | ReasoningItem
AnyItem: TypeAlias = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem


class ItemList(ResponseModel, frozen=True, kw_only=True):
    """GET /v1/responses/{id}/input_items. The ids are null if the list is empty."""

    object: Literal["list"] = "list"
    data: list[AnyItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
