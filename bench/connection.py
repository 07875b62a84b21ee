"""One HTTP/1.1 request over one connection, as light as it gets: a socket and httptools."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools

MAX_ERROR_BODY = 16 * 2**10
"""Bytes of an error's body that are kept."""


class ConnectionFailed(Exception):
    """The server could not be reached, or left before its answer was whole."""


class Endpoint:
    """A base URL such as ``http://127.0.0.1:8000/v1``: where to connect, and heads of requests."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        """Raises ValueError if the URL is not http or https with a host."""
        url = urlsplit(base_url)
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            raise ValueError(f"{base_url} is not an http or https URL")
        self.host = url.hostname
        self.tls = ssl.create_default_context() if url.scheme == "https" else None
        self.port = url.port or (443 if self.tls else 80)
        self._path = url.path.rstrip("/")
        # one connection a request: clients are many, and a server may tie a thread to each
        head = [f"Host: {url.netloc.rpartition('@')[2]}", "Connection: close"]
        if api_key is not None:
            head.append(f"Authorization: Bearer {api_key}")
        self._head = "".join(f"{line}\r\n" for line in head)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request; ``path`` is appended to the base URL's."""
        described = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = (
            f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}{described if body else ''}\r\n"
        )
        return head.encode("latin-1") + body


class Exchange(asyncio.Protocol):
    """Sends a request and hands over the answer's body as it comes. Event loop only.

    ``on_body(now, chunk)`` gets what a successful answer (200) says, ``now`` being
    ``time.perf_counter()`` when the bytes were there; what another says is kept in ``error_body``.
    """

    def __init__(self, request: bytes, on_body: Callable[[float, bytes], None]) -> None:
        self.status = 0
        self.error_body = b""
        self._request = request
        self._on_body = on_body
        self._now = 0.0
        self._is_delimited_by_close = True
        self._error: Exception | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)

    async def wait_ended(self) -> None:
        """Until the answer is whole. Raises ConnectionFailed if it will never be."""
        await self._ended
        if self._error is not None:
            raise self._error

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send at once."""
        cast("asyncio.WriteTransport", transport).write(self._request)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Take in bytes of the answer."""
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ConnectionFailed(f"the answer is no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of an answer that has no length of its own, else its failure."""
        # llhttp tells of no end where the connection's is the end: the reader of the body knows
        is_cut = exc is not None or not self.status or not self._is_delimited_by_close
        self._end(
            ConnectionFailed(f"the connection was lost: {exc or 'closed'}") if is_cut else None
        )

    # What httptools calls.

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note whether the answer says where it ends."""
        self._is_delimited_by_close &= name.lower() not in {b"content-length", b"transfer-encoding"}

    def on_message_begin(self) -> None:
        """A new answer; an interim one (1xx) may have come before."""
        self._is_delimited_by_close = True

    def on_headers_complete(self) -> None:
        """The status is known."""
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self.status == 200:
            self._on_body(self._now, body)
        elif len(self.error_body) < MAX_ERROR_BODY:
            self.error_body += body

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self.status >= 200:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._error = error  # not the future's: nobody may be waiting any more
            self._ended.set_result(None)


async def exchange(
    endpoint: Endpoint, request: bytes, on_body: Callable[[float, bytes], None]
) -> Exchange:
    """Send a request and take its whole answer in. Raises ConnectionFailed."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.create_connection(
            lambda: Exchange(request, on_body), endpoint.host, endpoint.port, ssl=endpoint.tls
        )
    except OSError as error:
        raise ConnectionFailed(
            f"cannot connect to {endpoint.host}:{endpoint.port}: {error}"
        ) from error
    try:
        await protocol.wait_ended()
    finally:
        transport.abort()
    return protocol
