"""Error bodies: each API has its own shape, and the path of a request tells the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from schemas.errors import ErrorObject, ErrorResponse
from server.anthropic_errors import anthropic_shape
from server.ollama_errors import ollama_shape

Shape: TypeAlias = Callable[[int, ErrorObject, str | None], bytes]
"""Encodes an error with its HTTP status, and the request's id if it is known, as the body of a
response."""

ID_KEY = "request_id"
"""Key in the ``state`` of an ASGI scope: the request's id."""


def openai_shape(_status: int, error: ErrorObject, _request_id: str | None = None) -> bytes:
    """``{"error": {...}}``."""
    return msgspec.json.encode(ErrorResponse(error=error))


SHAPES: Mapping[str, Shape] = {"/v1/messages": anthropic_shape, "/api/": ollama_shape}
"""By path: of a route, or of a folder of routes if it ends with a slash. The rest is OpenAI's."""


def is_anthropic(path: str) -> bool:
    """Whether requests for ``path`` are of Anthropic's API."""
    return shape_at(path) is anthropic_shape


def shape_at(path: str) -> Shape:
    """The shape of errors of requests for ``path``, also where there is no such route."""
    for place, shape in SHAPES.items():
        if path == place or path.startswith(place if place.endswith("/") else place + "/"):
            return shape
    return openai_shape
