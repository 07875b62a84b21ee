"""Input items of POST /v1/responses (OpenAI API reference, responses, create).

An item is one Struct, because OpenAI lets messages leave out their `type`. Which fields an item of
a type needs, the server checks.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from schemas.base import RequestModel
from schemas.limits import MAX_INPUT_ITEMS, MAX_PARTS
from schemas.messages import (
    InputAudioPart,
    InputTextPart,
    OutputTextPart,
    Part,
    RefusalPart,
    TextPart,
)
from schemas.scalars import Label, Text


class SummaryTextPart(Part, tag="summary_text", frozen=True, kw_only=True):
    """Part of a summary of earlier reasoning."""

    text: Text


class ReasoningTextPart(Part, tag="reasoning_text", frozen=True, kw_only=True):
    """Part of earlier reasoning."""

    text: Text


class InputImagePart(Part, tag="input_image", frozen=True, kw_only=True):
    """An image. Its fields are not read, because the server refuses the part."""


class InputFilePart(Part, tag="input_file", frozen=True, kw_only=True):
    """A file. Its fields are not read, because the server refuses the part."""


class InputVideoPart(Part, tag="input_video", frozen=True, kw_only=True):
    """A video. Its fields are not read, because the server refuses the part."""


InputPart: TypeAlias = (
    InputTextPart
    | OutputTextPart
    | TextPart
    | RefusalPart
    | SummaryTextPart
    | ReasoningTextPart
    | InputImagePart
    | InputFilePart
    | InputAudioPart
    | InputVideoPart
)

InputParts = Annotated[list[InputPart], Meta(max_length=MAX_PARTS)]
InputContent: TypeAlias = Text | InputParts


class InputItem(RequestModel, frozen=True, kw_only=True):
    """An item of the conversation. Without `type` it is a message.

    `message` has role and content, `function_call` has call_id, name and arguments,
    `function_call_output` has call_id and output, `reasoning` has summary, content or
    encrypted_content, `item_reference` has the id of an item of a stored response.
    """

    type: Label | None = None
    id: Label | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: InputContent | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    call_id: Label | None = None
    name: Label | None = None
    namespace: Label | None = None
    arguments: Text | None = None
    output: InputContent | None = None
    summary: InputParts | None = None
    encrypted_content: Text | None = None


Input: TypeAlias = Text | Annotated[list[InputItem], Meta(max_length=MAX_INPUT_ITEMS)]
"""A text, which is one message of the user, or items."""
