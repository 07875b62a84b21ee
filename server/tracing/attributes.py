"""The span of a request, by OpenTelemetry's conventions for generative AI, as plain data.

The conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from schemas.records import RequestRecord

Attributes: TypeAlias = dict[str, str | bool | int | float | list[str]]

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/api/chat": "chat",
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/api/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v1/score": "score",
}

_PARAMETERS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "n": "choice.count",
}
"""Parameters of a record that the conventions name, and their names after ``gen_ai.request.``."""


def span_name(record: RequestRecord) -> str:
    """``chat MODEL``; of a request that asks for no generation: ``POST ROUTE``."""
    operation = _OPERATIONS.get(record.route)
    return f"POST {record.route}" if operation is None else f"{operation} {record.model}"


def span_attributes(record: RequestRecord) -> Attributes:
    """What is known of a request that has ended. Texts of clients are not among it.

    Times are under names of our own, in milliseconds.
    """
    found: dict[str, str | bool | float | list[str] | None] = {
        "gen_ai.operation.name": _OPERATIONS.get(record.route),
        "gen_ai.provider.name": "roseinfer",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": [reason for reason in record.finish_reasons if reason],
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "http.request.method": "POST",
        "http.route": record.route,
        "http.response.status_code": record.status,
        "error.type": record.error_code or (str(record.status) if record.error else None),
        "roseinfer.request_id": record.request_id,
        "roseinfer.key": record.key,
        "roseinfer.ended_by": record.ended_by,
        "roseinfer.num_steps": record.num_steps,
        "roseinfer.mean_batch": record.mean_batch,
        "roseinfer.num_preemptions": record.num_preemptions,
        "gen_ai.response.time_to_first_chunk": (
            None if record.ttft_ms is None else record.ttft_ms / 1e3
        ),
    }
    for name, value in record.parameters.items():
        if name in _PARAMETERS:
            found[f"gen_ai.request.{_PARAMETERS[name]}"] = value
    for phase, milliseconds in msgspec.structs.asdict(record.times_ms).items():
        found[f"roseinfer.times_ms.{phase}"] = milliseconds
    return {name: value for name, value in found.items() if value is not None and value != []}
