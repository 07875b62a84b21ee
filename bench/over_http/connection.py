"""One HTTP/1.1 request over one connection, with little overhead, and the times of its pieces."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

from server.client.answer import Address, ServerAnswer, ServerFailed, request_head

MAX_ERROR_BODY = 16 * 2**10
"""Bytes of an error's body that are kept."""

CONNECT_TIMEOUT = 900.0
"""Seconds. A whole request usually has less."""


class ConnectionFailed(Exception):
    """The server could not be reached, or its answer is incomplete."""


class ServerAddress:
    """A base URL such as ``http://127.0.0.1:8000/v1``, and the heads of requests to it."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        """Raises ValueError if the URL is not http or https with a host."""
        url = urlsplit(base_url)
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            raise ValueError(f"{base_url} is not an http or https URL")
        is_tls = url.scheme == "https"
        port = url.port or (443 if is_tls else 80)
        self.address = Address(url.hostname, port, url.path.rstrip("/"), is_tls)
        self._api_key = api_key

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the bytes of a request; ``path`` is appended to the base URL's path."""
        headers = [(b"content-type", b"application/json")] if body else []
        head = request_head(
            method, path.encode(), headers, self.address, key=self._api_key, size=len(body)
        )
        return head + body


class Exchange:
    """The part of an answer that has arrived. Event loop only.

    ``on_body(now, chunk)`` gets the body of a successful answer (200); ``now`` is the
    ``time.perf_counter()`` at which the bytes arrived. Any other body is kept in ``error_body``.
    """

    is_ready = True

    def __init__(self, on_body: Callable[[float, bytes], None]) -> None:
        self.status = 0
        self.error_body = b""
        self._on_body = on_body
        self._now = 0.0

    def heard(self, _now: float) -> None:
        """Note the time: bytes have arrived. The loop's clock may count milliseconds."""
        self._now = time.perf_counter()

    def write(self, data: bytes) -> None:
        """Take what has arrived of the body."""
        if self.status == 200:
            self._on_body(self._now, data)
        elif len(self.error_body) < MAX_ERROR_BODY:
            self.error_body += data


async def exchange(
    endpoint: ServerAddress, request: bytes, on_body: Callable[[float, bytes], None]
) -> Exchange:
    """Send a request and receive its whole answer. Raises ConnectionFailed."""
    found = Exchange(on_body)
    answer = ServerAnswer(request, silence=0.0, on_progress=found.heard)
    try:
        with closing(answer):
            await answer.connect(endpoint.address, CONNECT_TIMEOUT)
            await answer.head()
            found.status = answer.status
            while True:
                data, is_last = await answer.receive()
                if data:
                    found.write(data)
                if is_last:
                    return found
                answer.writer = found
    except ServerFailed as error:
        raise ConnectionFailed(str(error)) from error
