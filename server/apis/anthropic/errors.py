"""Errors in Anthropic's shape (Anthropic API reference, errors)."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from schemas import anthropic_answer as wire
from schemas.errors import ErrorObject

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""By status. Other 4xx are an invalid_request_error, the rest an api_error."""

_FIELDS = {
    "response_format": "output_config.format",
    "stop": "stop_sequences",
    "thinking_token_budget": "thinking.budget_tokens",
}
"""Names of fields of a chat request that a Messages request becomes."""

_TOOL_FIELDS = (
    (re.compile(r"^(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
    (re.compile(r"^(tools\[\d+\])\.function"), r"\1"),
)


def anthropic_shape(status: int, error: ErrorObject, request_id: str | None = None) -> bytes:
    """``{"type": "error", "error": {...}}``. ``param`` and ``code`` are among the details."""
    return msgspec.json.encode(anthropic_error(status, error, request_id))


def anthropic_error(
    status: int, error: ErrorObject, request_id: str | None = None
) -> wire.AnthropicErrorResponse:
    """The body of an error response, and the data of an error event."""
    param, message = error.param, error.message
    if param is not None:
        for pattern, replacement in _TOOL_FIELDS:
            param = pattern.sub(replacement, param)
        param = _FIELDS.get(param, param)
    if error.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"  # clients look for these words
    elif param is not None and param not in message:
        message = f"{param}: {message}"
    details = wire.AnthropicErrorDetails(error_code=error.code, param=param)
    return wire.AnthropicErrorResponse(
        error=wire.AnthropicErrorObject(
            type=_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"),
            message=message,
            details=UNSET if error.code is None and param is None else details,
        ),
        request_id=request_id,
    )
