"""What handlers declare of their responses: ``@post(responses=returns(...))``."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from litestar.openapi.datastructures import ResponseSpec

from schemas.errors import ErrorResponse
from server.http.apis import SSE

ERRORS = {
    400: "The request is invalid, or the server or model does not support it.",
    401: "The API key is missing or wrong.",
    403: "The `Host` or `Origin` header is not allowed.",
    404: "The server does not serve this model.",
    408: "The body did not arrive in time.",
    413: "The body is larger than the server allows.",
    415: "The body is not application/json.",
    429: "Too much is waiting, or a rate is reached. `retry-after` says when to try again.",
    500: "The server failed on this request.",
    503: "The server is loading, draining or failed. `retry-after` says when to try again.",
    504: "The time that the client or the operator gave the request is over.",
}

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


@dataclass
class StreamedSpec(ResponseSpec):
    """A response that is JSON, or a stream if the request sets ``stream``.

    ``events`` are the types of the events' ``data``. Without any the stream is plain text.
    ``error`` is the type of an event that ends the stream early. ``last`` is the data of the last
    event if it is none of these. ``stream_type`` is the stream's media type.
    """

    events: tuple[type[msgspec.Struct], ...] = ()
    error: type[msgspec.Struct] = ErrorResponse
    last: str | None = None
    stream_type: str = SSE


def returns(
    success: type[msgspec.Struct] | None,
    *errors: int,
    error: type[msgspec.Struct] = ErrorResponse,
    description: str = "Success.",
) -> dict[int, ResponseSpec]:
    """Declare a JSON response and its errors, without 401 and 403: ``describe`` adds these."""
    return {200: described(success, description), **_errors(errors, error)}


def returns_or_streams(
    success: type[msgspec.Struct],
    events: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None,
    *errors: int,
    error: type[msgspec.Struct] = ErrorResponse,
    last: str | None = "[DONE]",
    stream_type: str = SSE,
) -> dict[int, ResponseSpec]:
    """Declare a JSON response that may also be streamed as ``events``. None: as plain text."""
    types = events if isinstance(events, tuple) else () if events is None else (events,)
    spec = StreamedSpec(
        success,
        generate_examples=False,
        description="Success.",
        events=types,
        error=error,
        last=last,
        stream_type=stream_type,
    )
    return {200: spec, **_errors(errors, error)}


def described(type_: type[msgspec.Struct] | None, description: str) -> ResponseSpec:
    """A response of this type. None is plain text."""
    return ResponseSpec(type_, generate_examples=False, description=description)


def _errors(statuses: tuple[int, ...], type_: type[msgspec.Struct]) -> dict[int, ResponseSpec]:
    return {status: described(type_, ERRORS[status]) for status in statuses}
