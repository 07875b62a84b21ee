"""The body of a request before it is decoded: its media type, and its bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from litestar.exceptions import InternalServerException

from server.errors import APIError


def check_media_type(headers: Mapping[str, str], *, is_open: bool) -> None:
    """Raise APIError for another type than JSON's.

    ``is_open`` lets clients that are no browsers send every type: a page of another origin could
    send other types than JSON's without permission.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    if media_type.lower() != "application/json" and not (is_open and "origin" not in headers):
        raise APIError(415, f"Content-Type must be application/json, not {media_type or 'absent'}.")


async def whole_body(read: Callable[[], Awaitable[bytes]]) -> bytes:
    """The bytes that Litestar's ``read`` returns. Raises APIError if there are none, or not all."""
    try:
        body = await read()
    except InternalServerException:
        raise APIError(499, "The client disconnected before its request was read.") from None
    if not body:
        raise APIError(400, "The body is empty; a JSON object is expected.")
    return body
