"""POST /generate: plain text in, plain text out."""

from typing import Annotated

from msgspec import Meta

from schemas.base import RequestModel, ResponseModel
from schemas.limits import INT32_MAX, INT64_MAX
from schemas.scalars import Priority, Text


class GenerateRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text to continue. With `stream` the response is the new text as raw UTF-8."""

    prompt: Text
    max_new_tokens: (
        Annotated[int, Meta(ge=1, le=INT64_MAX, description="Maximum of generated tokens.")] | None
    ) = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: (
        Annotated[
            int, Meta(ge=-1, le=INT32_MAX, description="Keep the k best tokens; 0 and -1: all.")
        ]
        | None
    ) = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_on_eos: Annotated[bool, Meta(description="false: continue after end tokens.")] | None = (
        None
    )
    do_sample: Annotated[bool, Meta(description="false: greedy.")] | None = None
    stream: bool | None = None
    priority: Priority | None = None


class GenerateResponse(ResponseModel, frozen=True, kw_only=True):
    """The prompt followed by the generated text."""

    text: str
