"""Content-Encoding of bodies: which are decoded, and within which size (RFC 9110, section 8.4)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import anyio
from anyio import to_thread

from server.http.errors import APIError, body_too_large

CODINGS = ("gzip", "deflate")

_GZIP, _ZLIB, _RAW = 31, 15, -15
"""zlib's names of the formats. ``deflate`` is zlib's; some clients send it without the header."""

MAX_MEMBERS = 64
"""Members of a gzip body. The rest of the body is copied for each."""

_decoders = anyio.CapacityLimiter(2)
"""Bodies that are decoded at once: so many of the largest size are in no budget yet."""


def coding_of(headers: Mapping[str, str]) -> str | None:
    """The coding of a body, None if it has none. Raises APIError for one that is not decoded."""
    given = headers.get("content-encoding", "").lower().split(",")
    names = [name for part in given if (name := part.strip()) not in {"", "identity"}]
    if not names:
        return None
    if len(names) > 1 or (name := names[0].removeprefix("x-")) not in CODINGS:
        raise APIError(
            415,
            f"Content-Encoding must be {', '.join(CODINGS)} or identity, not "
            f"{', '.join(names)[:64]}.",
            headers={"accept-encoding": ", ".join(CODINGS)},
        )
    return name


async def plain(body: bytes, coding: str, most: int) -> bytes:
    """Decode a body in a thread. Raises APIError; for more than ``most`` bytes it is a 413."""
    return await to_thread.run_sync(
        decompress, body, coding, most, abandon_on_cancel=True, limiter=_decoders
    )


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """As ``plain``. It decodes one byte more than ``most`` at most.

    A gzip body may be several members, whose contents are joined (RFC 1952, section 2.2).
    """
    if coding == "gzip":
        return _joined(body, most)
    has_header = len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0
    data, rest = _first(body, _ZLIB if has_header else _RAW, coding, most)
    if rest:
        raise _broken(coding)
    return data


def _joined(body: bytes, most: int) -> bytes:
    members: list[bytes] = []
    for _ in range(MAX_MEMBERS):
        data, body = _first(body, _GZIP, "gzip", most)
        members.append(data)
        most -= len(data)
        if not body:
            return b"".join(members)
    raise _broken("gzip")


def _first(body: bytes, bits: int, coding: str, most: int) -> tuple[bytes, bytes]:
    """Decode up to the end of the compressed data; return what is behind it too."""
    stream = zlib.decompressobj(bits)
    try:
        data = stream.decompress(body, most + 1)
    except zlib.error:
        raise _broken(coding) from None
    if len(data) > most:
        raise body_too_large()
    if not stream.eof:
        raise _broken(coding)
    return data, stream.unused_data


def _broken(coding: str) -> APIError:
    return APIError(400, f"The body is not what its Content-Encoding, {coding}, says.")
