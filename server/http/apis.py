"""The registry of APIs and the one table of their paths.

Each API registers one ``Api`` when its folder below ``server.apis`` is imported. A path of no API
is answered as OpenAI's are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from schemas.errors import ErrorObject, ErrorResponse

SSE, NDJSON = "text/event-stream", "application/x-ndjson"
"""Media types of streams: server-sent events, and lines of JSON."""

Shape: TypeAlias = Callable[[int, ErrorObject, str | None], bytes]
"""Encodes an error with its HTTP status, and the request's id if it is known, as the body of a
response."""

StreamEnd: TypeAlias = Callable[[ErrorObject, bytes, bytes], bytes]
"""The event that ends a stream of server-sent events with an error: of the error, the body of a
response that has it, and the piece that was sent last."""

ID_KEY = "request_id"
"""Key in the ``state`` of an ASGI scope: the request's id."""


def openai_shape(_status: int, error: ErrorObject, _request_id: str | None = None) -> bytes:
    """``{"error": {...}}``."""
    return msgspec.json.encode(ErrorResponse(error=error))


def plain_event(_error: ErrorObject, body: bytes, _last: bytes) -> bytes:
    return b"data: " + b" ".join(body.splitlines()) + b"\n\n"


def error_event(error: ErrorObject, body: bytes, last: bytes) -> bytes:
    """An event with the name ``error``."""
    return b"event: error\n" + plain_event(error, body, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPath:
    """The properties of a path that are needed before its route is found."""

    has_ticket: bool = False
    """Whether POST takes an admission ticket: it generates, tokenizes, or reads a large body."""
    stream: str = ""
    """The media type of its answers to ``"stream": true``; empty if it has none."""
    operation: str = ""
    """The operation's name in OpenTelemetry's conventions."""
    keeps_answers: bool = False
    """Whether later requests may name an answer by its id."""
    is_probe: bool = False
    """Whether it is a probe of health, which is answered however busy the server is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its paths, and what differs between APIs before a handler runs and after it failed.

    ``paths`` are those of its routes, as Litestar writes them. ``places`` are prefixes: whatever
    is there has the API's errors, also where there is no route. One that ends with a slash is a
    folder, another one is a path and what is below it.
    """

    paths: dict[str, ApiPath]
    places: tuple[str, ...] = ()
    shape: Shape = openai_shape
    stream_end: StreamEnd = error_event
    id_headers: tuple[bytes, ...] = (b"x-request-id",)
    """Headers of a response that name the request's id."""
    takes_any_media_type: bool = False
    """Whether clients that are no browsers may send JSON as another type."""
    model_tag: str = ""
    """What clients append to a model's name."""


OTHER = Api(paths={})
"""The API of paths that are no API's."""

_NOTHING = ApiPath()

_apis: dict[str, Api] = {}
_paths: dict[str, ApiPath] = {}


def register(api: Api) -> None:
    _apis.update(dict.fromkeys(api.places, api))
    _paths.update(api.paths)


def table() -> dict[str, ApiPath]:
    """All paths of the registered APIs."""
    return dict(_paths)


def path_at(path: str) -> ApiPath:
    """The entry of a path; one without any property for a path that is not in the table."""
    return _paths.get(path, _NOTHING)


def api_at(path: str) -> Api:
    """The API of requests for ``path``, also where there is no such route."""
    for place, api in _apis.items():
        if path == place or path.startswith(place if place.endswith("/") else place + "/"):
            return api
    return OTHER
