"""POST /tokenize and /detokenize, in vLLM's format."""

from typing import Annotated

from msgspec import Meta

from schemas.base import RequestModel, ResponseModel
from schemas.limits import MAX_PROMPT_ITEMS, MAX_TOKENIZED
from schemas.messages import Messages
from schemas.scalars import Description, JsonObject, Label, TokenId
from schemas.tools import Tools


class TokenizeRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text or a conversation to tokenize: exactly one of `prompt` and `messages`.

    The server checks that. The template fields apply to `messages` only.
    """

    model: Label | None = None
    prompt: Annotated[str, Meta(max_length=MAX_TOKENIZED)] | None = None
    messages: Messages | None = None
    add_special_tokens: (
        Annotated[bool, Meta(description="Default: true for a prompt, false for messages.")] | None
    ) = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: Tools | None = None
    chat_template: Description | None = None
    chat_template_kwargs: JsonObject | None = None


class TokenizeResponse(ResponseModel, frozen=True, kw_only=True):
    """Token ids and their number. `token_strs` is null unless requested."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token ids to decode."""

    model: Label | None = None
    tokens: Annotated[list[TokenId], Meta(max_length=MAX_PROMPT_ITEMS)]


class DetokenizeResponse(ResponseModel, frozen=True, kw_only=True):
    """The text of the token ids."""

    prompt: str
