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
    return {name: getattr(options, name) for name in _SAME} | {
        "max_tokens": max_tokens(request),
        **_penalties(options),
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


def ignored_options(request: GenerationFields) -> tuple[str, ...]:
    """Options without the effect that they ask for, for ``server.http.ignored_fields``.

    Penalties count the whole text; with ``repeat_last_n`` Ollama's count the last tokens.
    """
    options = request.options
    if options is None or options.repeat_last_n in (None, -1, 0):
        return ()
    off: dict[str, tuple[float | None, ...]] = {
        "repetition_penalty": (None, 1),
        "presence_penalty": (None, 0),
        "frequency_penalty": (None, 0),
    }
    is_on = any(value not in off[name] for name, value in _penalties(options).items())
    return ("options.repeat_last_n",) if is_on else ()


def _penalties(options: OllamaOptions) -> dict[str, float | None]:
    """The penalties, which a window of no tokens turns off."""
    if options.repeat_last_n == 0:
        return {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    return {
        "repetition_penalty": options.repeat_penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
    }
