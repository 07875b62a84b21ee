"""Fields that say how a response is sent: streaming, usage, log-probabilities, identity.

Refuses fields that the protocol has and this server does not support.

No field that would change the answer is ignored. Each entry is a predicate of values that have no
effect and are accepted: those that turn a method off, and all parameters of a method that is off.
None means "not given" and is always accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.sampling import SamplingFields
from server.generation.job import Job, NewGrammars
from server.generation.model import ServedModel
from server.http.decoding import check_nesting
from server.rendering.base import AnswerHead, Renderer
from server.rendering.envelope import Envelope
from server.translation.samplers import have_no_effect


def check_shared_fields(request: SamplingFields) -> None:
    """Checks that need no model, of fields that both APIs have. Raises InvalidRequest."""
    check_nesting(request)
    check_stream_options(request)


def check_stream_options(request: SamplingFields) -> None:
    """Raise InvalidRequest for ``stream_options`` without ``stream``."""
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true.", param="stream_options"
        )


def new_envelope(
    request: SamplingFields,
    model: ServedModel,
    *,
    id_prefix: str,
    prompts: Sequence[Sequence[int]],
    num_choices: int,
    num_top: int | None,
    new_grammars: NewGrammars,
) -> Envelope:
    """The envelope of a new response, with an id of its own."""
    options = request.stream_options
    return Envelope(
        head=AnswerHead(
            id=f"{id_prefix}{uuid4().hex}",
            created=int(time.time()),
            model=model.name,
            system_fingerprint=model.fingerprint,
        ),
        tokenizer=model.tokenizer,
        prompts=prompts,
        num_choices=num_choices,
        num_top=num_top,
        num_prompt_top=request.prompt_logprobs,
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        return_token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        warnings=new_grammars.warnings,
    )


def new_job(
    request: SamplingFields,
    model: ServedModel,
    envelope: Envelope,
    params: Sequence[SamplingParams],
    renderer: Renderer,
    new_grammars: NewGrammars,
) -> Job:
    """The job of a request with the fields that both OpenAI APIs have. Raises InvalidRequest."""
    _check_num_logprobs(request, model, envelope, params)
    return Job(
        id=envelope.head.id,
        prompts=envelope.prompts,
        params=params,
        num_choices=envelope.num_choices,
        is_streamed=bool(request.stream),
        stream_interval=request.stream_interval or model.settings.stream_interval,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        renderer=renderer,
        new_grammars=new_grammars,
    )


def _check_num_logprobs(
    request: SamplingFields,
    model: ServedModel,
    envelope: Envelope,
    params: Sequence[SamplingParams],
) -> None:
    """Limit the log-probabilities that exist at once: all of an answer that is not streamed.

    Those of the only generation of a request count for the prompt only: the context limits it.
    """
    is_single = len(params) * envelope.num_choices == 1
    counted = 0
    for prompt, own in zip(envelope.prompts, params, strict=True):
        if own.prompt_logprobs is not None:
            counted += len(prompt) * (own.prompt_logprobs + 1)
        if own.logprobs is not None and not request.stream and not is_single:
            counted += own.max_tokens * (own.logprobs + 1)
    found, most = counted * envelope.num_choices, model.settings.max_answer_logprobs
    if found > most:
        raise InvalidRequest(
            f"The answer may have {found} log-probabilities; the limit is {most}. Ask for fewer "
            "alternatives, prompts, choices or tokens.",
            param="logprobs",
            code="invalid_value",
        )


Neutral = Callable[[Any, SamplingFields], bool]
"""Whether a value has no effect in this request."""


def _never(_value: Any, _request: SamplingFields) -> bool:
    return False


def _is(*values: object) -> Neutral:
    return lambda value, _request: value in values


def _is_at_least(limit: float) -> Neutral:
    return lambda value, _request: value >= limit


def _is_at_most(limit: float) -> Neutral:
    return lambda value, _request: value <= limit


def _without(*fields: str) -> Neutral:
    """The field is a parameter of what ``fields`` turn on."""
    return lambda _value, request: not any(getattr(request, name) for name in fields)


def _is_same_limit(value: int, request: SamplingFields) -> bool:
    """llama.cpp's name of ``max_tokens`` says the same."""
    return value == getattr(request, "max_tokens", None)


def _is_same_penalty(value: float, request: SamplingFields) -> bool:
    """llama.cpp's name of ``repetition_penalty`` says the same, or its window is empty."""
    return value in {1.0, request.repetition_penalty} or request.repeat_last_n == 0


_LLAMA_CPP: dict[str, Neutral] = {
    "n_predict": _is_same_limit,
    "n_probs": _is(0),
    "n_keep": _is(0, -1),
    "n_discard": _is(0),
    "min_keep": _is(0, 1),
    "post_sampling_probs": _is(False),
    "repeat_penalty": _is_same_penalty,
    "repeat_last_n": _without("frequency_penalty", "presence_penalty"),
    "penalize_nl": _without("frequency_penalty", "presence_penalty"),
    "typical_p": _is_at_least(1.0),
    "tfs_z": _is_at_least(1.0),
    "top_n_sigma": _is_at_most(0),
    "dynatemp_range": _is_at_most(0.0),
    "dynatemp_exponent": _without("dynatemp_range"),
    "mirostat": _is(0),
    "mirostat_tau": _without("mirostat"),
    "mirostat_eta": _without("mirostat"),
    "dry_multiplier": _is(0.0),
    "dry_base": _without("dry_multiplier"),
    "dry_allowed_length": _without("dry_multiplier"),
    "dry_penalty_last_n": _without("dry_multiplier"),
    "dry_sequence_breakers": _without("dry_multiplier"),
    "xtc_probability": _is_at_most(0.0),
    "xtc_threshold": _without("xtc_probability"),
    "samplers": have_no_effect,
    "grammar_lazy": _is(False),
    "grammar_triggers": _is([]),
    "lora": _is([]),
    "input_prefix": _is(""),
    "input_suffix": _is(""),
    "t_max_predict_ms": _is_at_most(0),
}


_SAMPLING: dict[str, Neutral] = {
    **_LLAMA_CPP,
    "guided_whitespace_pattern": _is(""),
    "use_beam_search": _is(False),
    "length_penalty": _is(1.0),
    "lora_path": _is("", []),
    "logits_processors": _is([]),
    "custom_logit_processor": _is(""),
    "custom_params": _is({}),
    "stop_regex": _is("", [], [""]),
    "spaces_between_special_tokens": _is(True),
    "logprob_token_ids": _is([]),
}

_CHAT: dict[str, Neutral] = {
    **_SAMPLING,
    "n_predict": lambda value, request: value == -1 or _is_same_limit(value, request),
    "modalities": lambda value, _request: "audio" not in value,
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
        if value is not None and not is_neutral(value, request):
            raise InvalidRequest(
                f"'{name}' is not supported by this server"
                + ("." if is_neutral is _never else " with this value."),
                param=name,
                code="unsupported_parameter",
            )
