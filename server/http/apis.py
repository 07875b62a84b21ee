"""The registry of APIs: what differs between them where a request is refused.

Each API registers itself when its folder is imported. Without an entry an API has OpenAI's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from schemas.errors import ErrorObject, ErrorResponse

Shape: TypeAlias = Callable[[int, ErrorObject, str | None], bytes]
"""Encodes an error with its HTTP status, and the request's id if it is known, as the body of a
response."""

ID_KEY = "request_id"
"""Key in the ``state`` of an ASGI scope: the request's id."""


def openai_shape(_status: int, error: ErrorObject, _request_id: str | None = None) -> bytes:
    """``{"error": {...}}``."""
    return msgspec.json.encode(ErrorResponse(error=error))


@dataclass(frozen=True, slots=True)
class Api:
    """One API: the shape of its errors, and the headers that name a request's id."""

    shape: Shape
    id_headers: tuple[bytes, ...] = (b"x-request-id",)


OPENAI = Api(openai_shape)

_APIS: dict[str, Api] = {}


def register(place: str, api: Api) -> None:
    """Answer requests at ``place`` as ``api`` does.

    ``place`` is the path of a route, or of a folder of routes if it ends with a slash.
    """
    _APIS[place] = api


def api_at(path: str) -> Api:
    """The API of requests for ``path``, also where there is no such route."""
    for place, api in _APIS.items():
        if path == place or path.startswith(place if place.endswith("/") else place + "/"):
            return api
    return OPENAI


def shape_at(path: str) -> Shape:
    """The shape of errors of requests for ``path``."""
    return api_at(path).shape
