"""Fields of both of Ollama's ways to generate, as fields of OpenAI's."""

from __future__ import annotations

from typing import Any

from core.contract.errors import InvalidRequest
from schemas.formats import JsonObjectFormat, JsonSchemaFormat, JsonSchemaSpec, ResponseFormat
from schemas.ollama import GenerationFields, OllamaOptions

_SAME = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "typical_p",
    "tfs_z",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
)


def sampling(request: GenerationFields) -> dict[str, Any]:
    """Sampling, streaming and the output format. Raises InvalidRequest naming the option.

    Options of llama.cpp's that have an effect are refused later, by their names.
    """
    options = request.options or OllamaOptions()
    _check_window(options)
    return {name: getattr(options, name) for name in _SAME} | {
        "max_tokens": max_tokens(request),
        "repetition_penalty": options.repeat_penalty,
        "stream": request.stream is not False,
        "response_format": _response_format(request),
    }


def max_tokens(request: GenerationFields) -> int | None:
    """The limit of generated tokens. None: until the context is full."""
    wanted = request.options.num_predict if request.options is not None else None
    return wanted if wanted is not None and wanted > 0 else None


def num_top_logprobs(request: GenerationFields) -> int | None:
    """Alternatives per token. None: no log-probabilities."""
    return (request.top_logprobs or 0) if request.logprobs else None


def template_switches(request: GenerationFields) -> dict[str, Any]:
    """Variables of the chat template. Without ``think`` the template's default applies."""
    think = request.think
    if think is None or think == "":
        return {}
    if isinstance(think, bool):
        return {"enable_thinking": think}
    return {"enable_thinking": True, "reasoning_effort": think}


def refused(name: str, why: str) -> InvalidRequest:
    """The refusal of a field that Ollama has."""
    return InvalidRequest(f"'{name}' {why}", param=name, code="unsupported_parameter")


def _response_format(request: GenerationFields) -> ResponseFormat | None:
    match request.format:
        case None | "":
            return None
        case "json":
            return JsonObjectFormat()
        case schema:
            assert isinstance(schema, dict)
            return JsonSchemaFormat(json_schema=JsonSchemaSpec(name="format", schema=schema))


def _check_window(options: OllamaOptions) -> None:
    """Penalties count the whole text; Ollama's count the last tokens."""
    penalties = (
        (options.repeat_penalty or 1.0) != 1.0,
        bool(options.presence_penalty),
        bool(options.frequency_penalty),
    )
    if any(penalties) and options.repeat_last_n not in (None, -1):
        raise refused(
            "options.repeat_last_n", "must be -1 beside a penalty: penalties count the whole text."
        )
