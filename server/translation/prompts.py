"""Prompts to token ids. Long texts take long: worker threads run these functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.contract.errors import InvalidRequest
from core.text.content_forms import joined
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest, Prompt
from schemas.limits import MAX_PROMPTS
from schemas.tokenize import TokenizeRequest
from server.admission.pools import checkpoint
from server.generation.families import Families
from server.translation.messages import plain_turns, template_messages
from server.translation.prompt_size import CheckSize, no_check


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """``text`` is the prompt's text if the client gave it and ``token_ids`` are all of it."""

    token_ids: Sequence[int]
    text: str | None = None


def chat_prompt(
    request: ChatCompletionRequest | TokenizeRequest,
    tokenizer: Tokenizer,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    allow_template: bool,
    families: Families | None = None,
    check_size: CheckSize = no_check,
) -> list[int]:
    """Render the conversation with its tools and tokenize it. Raises InvalidRequest.

    ``families`` are those of the tokenizer's template. If they write tools, that template gets
    ordinary turns only.
    """
    assert request.messages is not None
    if request.chat_template is not None and not allow_template:
        raise InvalidRequest(
            "chat_template is not allowed by this server's operator.",
            param="chat_template",
            code="unsupported_parameter",
        )
    continue_final = bool(request.continue_final_message)
    if continue_final and request.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other.",
            param="continue_final_message",
            code="invalid_parameter_combination",
        )
    messages = template_messages(request.messages)
    if continue_final:
        last = messages[-1]
        if last["role"] != "assistant" or "tool_calls" in last or not joined(last["content"]):
            raise InvalidRequest(
                "continue_final_message needs a last message of the assistant with text.",
                param=f"messages[{len(messages) - 1}]",
                code="invalid_value",
            )
    if families is not None and families.writes_tools and request.chat_template is None:
        messages = plain_turns(
            messages, tools, markup=families.markup, takes_system=families.takes_system
        )
        tools = ()
    ids = tokenizer.encode_chat(
        messages,
        tools=tools or None,
        add_generation_prompt=not continue_final and request.add_generation_prompt is not False,
        continue_final_message=continue_final,
        chat_template=request.chat_template,
        template_kwargs=_template_kwargs(request),
        check_size=check_size,
    )
    if not ids:
        raise InvalidRequest(
            "The prompt is empty: the chat template writes no token for these messages.",
            param="messages",
            code="invalid_value",
        )
    return ids


def completion_prompts(
    request: CompletionRequest,
    tokenizer: Tokenizer,
    *,
    check_size: CheckSize = no_check,
    check_suffix: CheckSize = no_check,
    most_tokens: int | None = None,
) -> list[TokenizedPrompt]:
    """All prompts of the request, in any of the four forms. Raises InvalidRequest.

    Text gets the tokenizer's special tokens unless ``add_special_tokens`` is false. Ids are used
    as they are. An empty text is the start of a document. The copies of the suffix, one in each
    prompt, have ``most_tokens`` together.
    """
    add_special_tokens = request.add_special_tokens is not False
    fim = _fim_token_ids(tokenizer) if request.suffix else None
    prompts = [
        text_or_ids[check_size(text_or_ids)] if isinstance(text_or_ids, str) else text_or_ids
        for text_or_ids in _split(request.prompt)
    ]
    if request.suffix and fim is not None:
        suffix = request.suffix[check_suffix(request.suffix)]
        after = tokenizer.encode(suffix, add_special_tokens=False)
        if most_tokens is not None and len(prompts) * len(after) > most_tokens:
            raise InvalidRequest(
                f"The suffix has {len(after)} tokens in each of {len(prompts)} prompts; the server "
                f"takes at most {most_tokens} together.",
                param="suffix",
                code="invalid_value",
            )
        return [_fill_in_the_middle(prompt, after, fim, tokenizer) for prompt in prompts]
    return [
        _tokenize(text_or_ids, tokenizer, add_special_tokens=add_special_tokens)
        for text_or_ids in prompts
    ]


def truncate(
    token_ids: Sequence[int], request: ChatCompletionRequest | CompletionRequest, *, room: int
) -> Sequence[int]:
    """Apply ``truncate_prompt_tokens``. -1 keeps the tokens that fit into ``room``."""
    wanted = request.truncate_prompt_tokens
    if wanted is None:
        return token_ids
    keep = max(room, 1) if wanted == -1 else wanted
    if keep == 0:
        raise InvalidRequest(
            "truncate_prompt_tokens must be -1 or above 0.",
            param="truncate_prompt_tokens",
            code="integer_below_min_value",
        )
    return token_ids[:keep] if request.truncation_side == "right" else token_ids[-keep:]


def _template_kwargs(request: ChatCompletionRequest | TokenizeRequest) -> dict[str, Any]:
    kwargs = dict(request.chat_template_kwargs or {})
    effort = getattr(request, "reasoning_effort", None)
    if effort is not None:
        kwargs.setdefault("reasoning_effort", effort)
        kwargs.setdefault("enable_thinking", effort != "none")
    return kwargs


def _split(prompt: Prompt | None) -> list[str | list[int]]:
    """The prompts, each a text or a list of ids."""
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""]
    if not prompt or prompt == [[]]:
        raise _invalid("prompt must not be empty.", code="empty_array")
    if all(isinstance(item, int) for item in prompt):
        return [prompt]  # type: ignore[list-item]
    kinds = {type(item) for item in prompt}
    if len(kinds) > 1 or int in kinds:
        raise _invalid("prompt must not mix texts and token ids.")
    if len(prompt) > MAX_PROMPTS:
        raise _invalid(
            f"prompt must hold at most {MAX_PROMPTS} prompts, not {len(prompt)}.",
            code="array_above_max_length",
        )
    return prompt  # type: ignore[return-value]


def _tokenize(
    prompt: str | list[int], tokenizer: Tokenizer, *, add_special_tokens: bool
) -> TokenizedPrompt:
    checkpoint()
    if isinstance(prompt, str):
        ids = tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        return TokenizedPrompt(ids or tokenizer.start_token_ids(), prompt)
    return TokenizedPrompt(_checked(prompt, tokenizer.vocab_size))


def _checked(token_ids: list[int], vocab_size: int) -> list[int]:
    if not token_ids:
        raise _invalid("prompt must not hold an empty list of token ids.", code="empty_array")
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise _invalid(f"prompt must hold token ids below {vocab_size}, not {token_id}.")
    return token_ids


def _fim_token_ids(tokenizer: Tokenizer) -> tuple[int, int, int]:
    fim = tokenizer.fim_token_ids()
    if fim is None:
        raise InvalidRequest(
            "This model has no tokens to fill in the middle of a text.",
            param="suffix",
            code="unsupported_parameter",
        )
    return fim


def _fill_in_the_middle(
    prompt: str | list[int], after: list[int], fim: tuple[int, int, int], tokenizer: Tokenizer
) -> TokenizedPrompt:
    """Prefix, suffix, middle: the order that code models are trained on."""
    checkpoint()
    if isinstance(prompt, str):
        before = tokenizer.encode(prompt, add_special_tokens=False)
    else:
        before = _checked(prompt, tokenizer.vocab_size)
    prefix_id, suffix_id, middle_id = fim
    ids = [prefix_id, *before, suffix_id, *after, middle_id]
    return TokenizedPrompt(ids, prompt if isinstance(prompt, str) else None)


def _invalid(message: str, *, code: str = "invalid_value") -> InvalidRequest:
    return InvalidRequest(message, param="prompt", code=code)
