"""Prompts to token ids. Long texts take long: worker threads run these functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from core.text.content_forms import joined
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest, Prompt
from schemas.limits import MAX_PROMPTS, MAX_TOKENIZED
from schemas.tokenize import TokenizeRequest
from server.generation.model import ServedModel
from server.http.decoding import check_nesting
from server.http.errors import conflicting, invalid, unsupported
from server.translation.messages import plain_turns, template_messages
from server.translation.prompt_size import CheckSize, size_check
from server.workers.pools import checkpoint


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """``text`` is the prompt's text if the client gave it and ``token_ids`` are all of it."""

    token_ids: Sequence[int]
    text: str | None = None


def chat_prompt(
    request: ChatCompletionRequest | TokenizeRequest,
    model: ServedModel,
    *,
    tools: Sequence[Mapping[str, Any]],
    check_size: CheckSize,
) -> list[int]:
    """Render the conversation with its tools and tokenize it. Raises InvalidRequest.

    If the model's family writes tools, the template gets ordinary turns only.
    """
    assert request.messages is not None
    if request.chat_template is not None and not model.settings.trust_request_chat_template:
        raise unsupported(
            "chat_template", "chat_template is not allowed by this server's operator."
        )
    continue_final = bool(request.continue_final_message)
    if continue_final and request.add_generation_prompt:
        raise conflicting(
            "continue_final_message",
            "continue_final_message and add_generation_prompt exclude each other.",
        )
    messages = template_messages(request.messages)
    if continue_final:
        last = messages[-1]
        if last["role"] != "assistant" or "tool_calls" in last or not joined(last["content"]):
            raise invalid(
                f"messages[{len(messages) - 1}]",
                "continue_final_message needs a last message of the assistant with text.",
            )
    families = model.families
    if families.writes_tools and request.chat_template is None:
        messages = plain_turns(
            messages, tools, markup=families.markup, takes_system=families.takes_system
        )
        tools = ()
    ids = model.tokenizer.encode_chat(
        messages,
        tools=tools or None,
        add_generation_prompt=not continue_final and request.add_generation_prompt is not False,
        continue_final_message=continue_final,
        chat_template=request.chat_template,
        template_kwargs=_template_kwargs(request),
        check_size=check_size,
    )
    if not ids:
        raise invalid(
            "messages",
            "The prompt is empty: the chat template writes no token for these messages.",
        )
    return ids


def counted_prompt(
    request: ChatCompletionRequest | TokenizeRequest,
    model: ServedModel,
    tools: Sequence[Mapping[str, Any]],
) -> list[int]:
    """The ``chat_prompt`` of a conversation that may exceed the context: nothing is generated."""
    check_nesting(request)
    size = len(msgspec.json.encode(request.messages))
    if size > MAX_TOKENIZED:
        message = f"messages have {size} bytes; the limit is {MAX_TOKENIZED}."
        raise InvalidRequest(message, param="messages", code="string_above_max_length")
    return chat_prompt(request, model, tools=tools, check_size=lambda text: slice(0, len(text)))


def completion_prompts(request: CompletionRequest, model: ServedModel) -> list[TokenizedPrompt]:
    """All prompts of the request, in any of the four forms. Raises InvalidRequest.

    Text gets the tokenizer's special tokens unless ``add_special_tokens`` is false. Ids are used
    as they are. An empty text is the start of a document.
    """
    tokenizer = model.tokenizer
    fim = tokenizer.fim_token_ids() if request.suffix else None
    if request.suffix and fim is None:
        raise unsupported("suffix", "This model has no tokens to fill in the middle of a text.")
    given = "" if request.prompt is None else request.prompt
    if given in ([], [[]]):
        raise InvalidRequest("prompt must not be empty.", param="prompt", code="empty_array")
    check_size = size_check(request, model, param="prompt")
    prompts = [
        text_or_ids[check_size(text_or_ids)] if isinstance(text_or_ids, str) else text_or_ids
        for text_or_ids in split_prompts(given, "prompt")
    ]
    after = _suffix_ids(request.suffix, len(prompts), request, model) if request.suffix else []
    adds_special = request.add_special_tokens is not False and fim is None
    tokenized: list[TokenizedPrompt] = []
    for prompt in prompts:
        checkpoint()
        text = prompt if isinstance(prompt, str) else None
        if isinstance(prompt, str):
            ids = tokenizer.encode(prompt, add_special_tokens=adds_special)
        else:
            ids = _checked(prompt, tokenizer.vocab_size)
        if fim is not None:  # prefix, suffix, middle: the order that code models are trained on
            ids = [fim[0], *ids, fim[1], *after, fim[2]]
        tokenized.append(TokenizedPrompt(ids or tokenizer.start_token_ids(), text))
    return tokenized


def _suffix_ids(
    suffix: str, num_prompts: int, request: CompletionRequest, model: ServedModel
) -> list[int]:
    """The ids of the suffix. Its copies, one in each prompt, have to fit into the budget."""
    suffix = suffix[size_check(request, model, param="suffix")(suffix)]
    ids = model.tokenizer.encode(suffix, add_special_tokens=False)
    most = model.settings.max_queued_prompt_tokens
    if num_prompts * len(ids) > most:
        raise invalid(
            "suffix",
            f"The suffix has {len(ids)} tokens in each of {num_prompts} prompts; the server "
            f"takes at most {most} together.",
        )
    return ids


def truncate(
    token_ids: Sequence[int], request: ChatCompletionRequest | CompletionRequest, *, room: int
) -> Sequence[int]:
    """Apply ``truncate_prompt_tokens``. -1 keeps the tokens that fit into ``room``."""
    wanted = request.truncate_prompt_tokens
    if wanted is None:
        return token_ids
    keep = max(room, 1) if wanted == -1 else wanted
    if keep == 0:
        raise empty_truncation()
    return token_ids[:keep] if request.truncation_side == "right" else token_ids[-keep:]


def empty_truncation() -> InvalidRequest:
    """The error of ``truncate_prompt_tokens`` that leaves no prompt."""
    field = "truncate_prompt_tokens"
    return InvalidRequest(
        f"{field} must be -1 or above 0.", param=field, code="integer_below_min_value"
    )


def _template_kwargs(request: ChatCompletionRequest | TokenizeRequest) -> dict[str, Any]:
    kwargs = dict(request.chat_template_kwargs or {})
    effort = getattr(request, "reasoning_effort", None)
    if effort is not None:
        kwargs.setdefault("reasoning_effort", effort)
        kwargs.setdefault("enable_thinking", effort != "none")
    return kwargs


def split_prompts(given: Prompt, field: str, noun: str = "prompts") -> list[str | list[int]]:
    """The prompts of a field, each a text or a list of ids. Raises InvalidRequest."""
    if isinstance(given, str):
        return [given]
    if all(isinstance(item, int) for item in given):
        return [given]  # type: ignore[list-item]
    if len({type(item) for item in given}) > 1:
        raise invalid(field, f"{field} must not mix texts and token ids.")
    if len(given) > MAX_PROMPTS:
        message = f"{field} must hold at most {MAX_PROMPTS} {noun}, not {len(given)}."
        raise InvalidRequest(message, param=field, code="array_above_max_length")
    return given  # type: ignore[return-value]


def _checked(token_ids: list[int], vocab_size: int) -> list[int]:
    if not token_ids:
        message = "prompt must not hold an empty list of token ids."
        raise InvalidRequest(message, param="prompt", code="empty_array")
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise invalid(
                "prompt", f"prompt must hold token ids below {vocab_size}, not {token_id}."
            )
    return token_ids
