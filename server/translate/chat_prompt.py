"""prompt_and_length: a conversation to token ids, and how long its answer may be."""

from __future__ import annotations

from schemas.chat import ChatCompletionRequest
from server.served_model import ServedModel
from server.translate.params import answer_length
from server.translate.prompt_size import size_check
from server.translate.prompts import chat_prompt, truncate


def prompt_and_length(
    request: ChatCompletionRequest,
    model: ServedModel,
    tools: list[dict[str, object]],
    *,
    clamps_length: bool = False,
) -> tuple[list[int], int]:
    """The prompt's ids, and the most tokens to generate. Raises InvalidRequest.

    ``clamps_length``: instead of more tokens than the context has room for, as many as fit.
    """
    allow_template = model.settings.trust_request_chat_template
    prompt = chat_prompt(
        request,
        model.tokenizer,
        tools=tools,
        allow_template=allow_template,
        families=model.families,
        check_size=size_check(request, model, param="messages"),
    )
    wanted = _wanted_tokens(request)
    prompt = list(truncate(prompt, request, room=model.info.max_model_len - (wanted or 1)))
    return prompt, answer_length(
        prompt,
        wanted,
        model.info,
        param="messages",
        is_clamped=clamps_length or model.settings.clamp_max_tokens,
    )


def _wanted_tokens(request: ChatCompletionRequest) -> int | None:
    """The limit of generated tokens that was asked for. None: until the context is full."""
    wanted = request.max_completion_tokens or request.max_tokens
    return None if wanted == -1 else wanted
