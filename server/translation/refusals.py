"""Refusals of fields that the protocol has and the server does not support.

No field that would change the answer is ignored. The tables say which values have no effect and are
accepted: those that turn a method off, and all parameters of a method that is off. None means "not
given" and is always accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.sampling import SamplingFields
from server.http.decoding import check_nesting
from server.http.errors import unsupported

NeutralIf = Callable[[Any, SamplingFields], bool]
"""Whether a value has no effect in this request."""

Neutral = tuple[object, ...] | NeutralIf
"""The values without effect, or a function that knows them. (): there are none."""


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


_LETTERS = {
    "a": "adaptive_p",
    "d": "dry",
    "e": "penalties",
    "f": "tfs_z",
    "k": "top_k",
    "m": "min_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "t": "temperature",
    "x": "xtc",
    "y": "typ_p",
}
"""llama.cpp's methods of sampling."""

_OTHER_NAMES = {"nucleus": "top_p", "temp": "temperature", "typical_p": "typ_p", "typical": "typ_p"}
_NAMES = frozenset(_LETTERS.values())

_OFF = {field.name: field.default for field in msgspec.structs.fields(SamplingParams)}
_METHODS = {
    name: method
    for name in SamplingFields.__struct_fields__
    if name in _OFF and (method := "penalties" if name.endswith("_penalty") else name) in _NAMES
}
"""The fields that turn methods of this server on, with llama.cpp's names of the methods."""


def _are_all_samplers(value: str | list[str], request: SamplingFields) -> bool:
    """Whether the request means the same without ``samplers``.

    It names every method that the request turns on. Of the methods that only llama.cpp has, a field
    that turns one on is refused by its own name. The order is this server's.
    """
    if isinstance(value, str):  # one name, several, or as ``edkypmxt`` a letter for each
        is_name = ";" in value or _sampler(value) in _NAMES
        value = value.split(";") if is_name else [_LETTERS.get(letter, letter) for letter in value]
    names = {_sampler(name) for name in value if name.strip()}
    needed = {method for name, method in _METHODS.items() if _is_on(name, getattr(request, name))}
    return not names or needed <= names <= _NAMES


def _is_on(name: str, value: float | None) -> bool:
    return value is not None and value != _OFF[name] and (name, value) != ("top_k", -1)


def _sampler(name: str) -> str:
    """The method in llama.cpp's spelling."""
    name = name.strip().lower().replace("-", "_")
    return _OTHER_NAMES.get(name, name)


_SAMPLING: dict[str, Neutral] = {
    # llama.cpp's fields
    "n_predict": _is_same_limit,
    "n_probs": (0,),
    "n_keep": (0, -1),
    "n_discard": (0,),
    "min_keep": (0, 1),
    "post_sampling_probs": (False,),
    "repeat_penalty": _is_same_penalty,
    "repeat_last_n": _without("frequency_penalty", "presence_penalty"),
    "penalize_nl": _without("frequency_penalty", "presence_penalty"),
    "typical_p": _is_at_least(1.0),
    "tfs_z": _is_at_least(1.0),
    "top_n_sigma": _is_at_most(0),
    "dynatemp_range": _is_at_most(0.0),
    "dynatemp_exponent": _without("dynatemp_range"),
    "mirostat": (0,),
    "mirostat_tau": _without("mirostat"),
    "mirostat_eta": _without("mirostat"),
    "dry_multiplier": (0.0,),
    "dry_base": _without("dry_multiplier"),
    "dry_allowed_length": _without("dry_multiplier"),
    "dry_penalty_last_n": _without("dry_multiplier"),
    "dry_sequence_breakers": _without("dry_multiplier"),
    "xtc_probability": _is_at_most(0.0),
    "xtc_threshold": _without("xtc_probability"),
    "samplers": _are_all_samplers,
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "lora": ([],),
    "input_prefix": ("",),
    "input_suffix": ("",),
    "t_max_predict_ms": _is_at_most(0),
    # vLLM's and SGLang's
    "guided_whitespace_pattern": ("",),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "lora_path": ("", []),
    "logits_processors": ([],),
    "custom_logit_processor": ("",),
    "custom_params": ({},),
    "stop_regex": ("", [], [""]),
    "spaces_between_special_tokens": (True,),
    "logprob_token_ids": ([],),
}

_TABLES: dict[type[msgspec.Struct], dict[str, Neutral]] = {
    ChatCompletionRequest: {
        **_SAMPLING,
        "n_predict": lambda value, request: value == -1 or _is_same_limit(value, request),
        "modalities": lambda value, _request: "audio" not in value,
        "audio": (),
        "web_search_options": (),
        "moderation": (),
        "documents": ([],),
        "mm_processor_kwargs": ({},),
        "add_special_tokens": (False,),  # the chat template writes them
        "echo": (False,),
        "stream_reasoning": (True,),
    },
    CompletionRequest: {
        **_SAMPLING,
        "thinking_token_budget": (-1,),
        "messages": (),
        "top_logprobs": (),
        "max_completion_tokens": (),
    },
}


def check_shared_fields(request: SamplingFields) -> None:
    """Checks that need no model. Raises InvalidRequest."""
    check_nesting(request)
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true.", param="stream_options"
        )


def refused_fields(request_type: type[msgspec.Struct]) -> dict[str, bool]:
    """The refused fields of a request type. True: values without effect are accepted."""
    return {name: neutral != () for name, neutral in _TABLES.get(request_type, {}).items()}


def refuse_unsupported(request: SamplingFields) -> None:
    """Raise InvalidRequest naming the first unsupported field."""
    for name, neutral in _TABLES[type(request)].items():
        value = getattr(request, name)
        if value is None:
            continue
        if not (value in neutral if isinstance(neutral, tuple) else neutral(value, request)):
            with_value = "." if neutral == () else " with this value."
            raise unsupported(name, f"'{name}' is not supported by this server{with_value}")
