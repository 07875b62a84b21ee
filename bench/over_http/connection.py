"""One HTTP/1.1 request over one connection, with little overhead: a socket and httptools."""

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
    """The server could not be reached, or its answer is incomplete."""


class Endpoint:
    """A base URL such as ``http://127.0.0.1:8000/v1``, and the heads of requests to it."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        """Raises ValueError if the URL is not http or https with a host."""
        url = urlsplit(base_url)
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            raise ValueError(f"{base_url} is not an http or https URL")
        self.host = url.hostname
        self.tls = ssl.create_default_context() if url.scheme == "https" else None
        self.port = url.port or (443 if self.tls else 80)
        self._path = url.path.rstrip("/")
        # One connection a request: a server may bind a thread to each open connection.
        head = [f"Host: {url.netloc.rpartition('@')[2]}", "Connection: close"]
        if api_key is not None:
            head.append(f"Authorization: Bearer {api_key}")
        self._head = "".join(f"{line}\r\n" for line in head)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the bytes of a request; ``path`` is appended to the base URL's path."""
        described = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = (
            f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}{described if body else ''}\r\n"
        )
        return head.encode("latin-1") + body


class Exchange(asyncio.Protocol):
    """Sends a request and passes on the answer's body as it arrives. Event loop only.

    ``on_body(now, chunk)`` gets the body of a successful answer (200); ``now`` is the
    ``time.perf_counter()`` at which the bytes arrived. Any other body is kept in ``error_body``.
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
        """Wait until the answer is complete. Raises ConnectionFailed if it cannot be."""
        await self._ended
        if self._error is not None:
            raise self._error

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of WriteTransport
        cast("asyncio.WriteTransport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ConnectionFailed(f"the answer is not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End an answer without a length; any other one has failed."""
        # llhttp does not report the end of a body that ends with its connection.
        is_cut = exc is not None or not self.status or not self._is_delimited_by_close
        self._end(
            ConnectionFailed(f"the connection was lost: {exc or 'closed'}") if is_cut else None
        )

    # Called by httptools.

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note whether the headers tell where the body ends."""
        self._is_delimited_by_close &= name.lower() not in {b"content-length", b"transfer-encoding"}

    def on_message_begin(self) -> None:
        """Reset what an interim answer (1xx) has set."""
        self._is_delimited_by_close = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status == 200:
            self._on_body(self._now, body)
        elif len(self.error_body) < MAX_ERROR_BODY:
            self.error_body += body

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._error = error  # not in the future, which may have no waiter any more
            self._ended.set_result(None)


async def exchange(
    endpoint: Endpoint, request: bytes, on_body: Callable[[float, bytes], None]
) -> Exchange:
    """Send a request and receive its whole answer. Raises ConnectionFailed."""
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
