"""The body of a request before it is decoded: its media type, its size and its bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from litestar.exceptions import InternalServerException

from server.http.apis import api_at
from server.http.errors import APIError


def check_media_type(headers: Mapping[str, str], path: str) -> None:
    """Raise APIError for another type than JSON's.

    Some APIs let clients that are no browsers send every type: a page of another origin could send
    other types than JSON's without permission.
    """
    is_open = api_at(path).takes_any_media_type
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    if media_type.lower() != "application/json" and not (is_open and "origin" not in headers):
        raise APIError(415, f"Content-Type must be application/json, not {media_type or 'absent'}.")


def declared_size(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The bytes of the body as ``Content-Length`` says; None if it does not say a number."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


async def whole_body(read: Callable[[], Awaitable[bytes]]) -> bytes:
    """The bytes that Litestar's ``read`` returns. Raises APIError if there are none, or not all."""
    try:
        body = await read()
    except InternalServerException:
        raise APIError(499, "The client disconnected before its request was read.") from None
    if not body:
        raise APIError(400, "The body is empty; a JSON object is expected.")
    return body
