"""The route that serves the document."""

from __future__ import annotations

from functools import cache

import msgspec
from litestar import Controller, get
from litestar.enums import MediaType
from litestar.handlers import HTTPRouteHandler

from server.openapi.document import describe


def openapi_route(controllers: list[type[Controller]], *, has_keys: bool) -> HTTPRouteHandler:
    """The route of the document that describes ``controllers``. The first request builds it."""

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(describe(controllers, has_keys=has_keys))

    @get(
        ["/openapi.json", "/v1/openapi.json"],
        media_type=MediaType.JSON,
        include_in_schema=False,
        sync_to_thread=True,  # building the document would block the event loop
    )
    def openapi() -> bytes:
        return encoded()

    return openapi
