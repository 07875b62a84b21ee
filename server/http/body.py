"""The body of a request before it is decoded: its media type, size, coding and bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
from anyio import to_thread
from litestar import Request
from litestar.exceptions import InternalServerException

from server.http.apis import api_at
from server.http.errors import APIError, body_too_large

CODINGS = ("gzip", "deflate")  # of Content-Encoding (RFC 9110, section 8.4)

_GZIP, _ZLIB, _RAW = 31, 15, -15
"""zlib's names of the formats. ``deflate`` is zlib's; some clients send it without the header."""

MAX_MEMBERS = 64  # members of a gzip body; the rest of the body is copied for each

_decoders = anyio.CapacityLimiter(2)
"""Bodies that are decoded at once: so many of the largest size are in no budget yet."""


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


async def whole_body(request: Request[Any, Any, Any]) -> bytes:
    """The bytes of a body. Raises APIError if there are none, or not all.

    ``request.body`` would keep them with the scope, until the answer is sent.
    """
    try:
        body = b"".join([piece async for piece in request.stream()])
    except InternalServerException:
        raise APIError(499, "The client disconnected before its request was read.") from None
    if not body:
        raise APIError(400, "The body is empty; a JSON object is expected.")
    return body


def coding_of(headers: Mapping[str, str]) -> str | None:
    """The coding of a body, None if it has none. Raises APIError for one that is not decoded."""
    given = headers.get("content-encoding", "").lower().split(",")
    names = [name for part in given if (name := part.strip()) not in {"", "identity"}]
    if not names:
        return None
    if len(names) > 1 or (name := names[0].removeprefix("x-")) not in CODINGS:
        known = ", ".join(CODINGS)
        message = f"Content-Encoding must be {known} or identity, not {', '.join(names)[:64]}."
        raise APIError(415, message, headers={"accept-encoding": known})
    return name


async def plain(body: bytes, coding: str, most: int) -> bytes:
    """Decode a body in a thread. Raises APIError; for more than ``most`` bytes it is a 413."""
    return await to_thread.run_sync(
        decompress, body, coding, most, abandon_on_cancel=True, limiter=_decoders
    )


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """Do what ``plain`` does. It decodes one byte more than ``most`` at most.

    A gzip body may be several members, whose contents are joined (RFC 1952, section 2.2).
    """
    bits = _GZIP
    if coding == "deflate":
        has_header = len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0
        bits = _ZLIB if has_header else _RAW
    members: list[bytes] = []
    for _ in range(MAX_MEMBERS if coding == "gzip" else 1):
        stream = zlib.decompressobj(bits)
        try:
            data = stream.decompress(body, most + 1)
        except zlib.error:
            break
        if len(data) > most:
            raise body_too_large()
        if not stream.eof:
            break
        members.append(data)
        most -= len(data)
        body = stream.unused_data
        if not body:
            return b"".join(members)
    raise APIError(400, f"The body is not what its Content-Encoding, {coding}, says.")
