"""Refuses fields that the protocol has and this server does not support.

No field that would change the answer is ignored. Each entry is a predicate of values that have no
effect and are accepted. None means "not given" and is always accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.llama_cpp import LlamaCppSamplingFields
from schemas.sampling import SamplingFields

Neutral = Callable[[Any], bool]
"""Whether a value has no effect."""


def _never(_value: Any) -> bool:
    return False


def _is(*values: object) -> Neutral:
    return lambda value: value in values


_SAMPLING: dict[str, Neutral] = {
    **dict.fromkeys(LlamaCppSamplingFields.__struct_fields__, _never),
    "guided_whitespace_pattern": _never,
    "use_beam_search": _is(False),
    "length_penalty": _is(1.0),
    "lora_path": _never,
    "logits_processors": _is([]),
    "custom_logit_processor": _never,
    "custom_params": _never,
    "stop_regex": _never,
    "spaces_between_special_tokens": _is(True),
    "logprob_token_ids": _is([]),
    "priority": _is(0),
}

_CHAT: dict[str, Neutral] = {
    **_SAMPLING,
    "functions": _is([]),
    "function_call": _is("none"),
    "modalities": lambda value: "audio" not in value,
    "audio": _never,
    "web_search_options": _never,
    "moderation": _never,
    "documents": _is([]),
    "mm_processor_kwargs": _is({}),
    "add_special_tokens": _is(False),  # the chat template writes them
    "echo": _is(False),
    "stream_reasoning": _is(True),
}

_COMPLETIONS: dict[str, Neutral] = {
    **_SAMPLING,
    "thinking_token_budget": _is(-1),
    "messages": _never,
    "top_logprobs": _never,
    "max_completion_tokens": _never,
}


def refused_fields(request_type: type[msgspec.Struct]) -> dict[str, bool]:
    """The refused fields of a request type. True: values without effect are accepted."""
    tables = {ChatCompletionRequest: _CHAT, CompletionRequest: _COMPLETIONS}
    table = tables.get(request_type, {})
    return {name: is_neutral is not _never for name, is_neutral in table.items()}


def refuse_unsupported(request: SamplingFields) -> None:
    """Raise InvalidRequest naming the first unsupported field."""
    match request:
        case ChatCompletionRequest():
            table = _CHAT
        case CompletionRequest():
            table = _COMPLETIONS
        case _:
            table = _SAMPLING
    for name, is_neutral in table.items():
        value = getattr(request, name)
        if value is not None and not is_neutral(value):
            raise InvalidRequest(
                f"'{name}' is not supported by this server"
                + ("." if is_neutral is _never else " with this value."),
                param=name,
                code="unsupported_parameter",
            )
