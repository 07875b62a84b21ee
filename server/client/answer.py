"""ServerAnswer: one request to a server over a connection of its own, and its answer.

Address: where a server listens.

A connection serves one request. So there is never a doubt about a request that fails on an old
connection: either connecting has failed and nothing was sent, or the server may have it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import httptools

Headers: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address, or the path of a Unix socket. ``base`` is what comes before every path."""

    host: str = ""
    port: int = 0
    base: str = ""
    is_tls: bool = False
    socket_path: str = ""

    @property
    def authority(self) -> str:
        """The value of ``Host``."""
        if self.socket_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """For people."""
        if self.socket_path:
            return f"unix:{self.socket_path}"
        return f"http{'s' if self.is_tls else ''}://{self.authority}{self.base}"


def parse_url(url: str) -> Address:
    """The address of ``http://host:port`` or ``unix:/path``. Raises ValueError.

    A path at the end, such as ``/v1``, is that of OpenAI's routes, as in a client's base URL.
    """
    if url.startswith("unix:/"):
        return Address(socket_path=url.removeprefix("unix:"))
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        raise ValueError(f"{url} is neither http://HOST[:PORT] nor https://... nor unix:/PATH")
    is_tls = parts.scheme == "https"
    base = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, parts.port or (443 if is_tls else 80), base, is_tls)


class ServerFailed(Exception):
    """The server gave no whole answer. The text is for people."""


class NotSent(ServerFailed):
    """No connection: the server has seen nothing of the request."""


class Silent(ServerFailed):
    """Nothing has come for too long."""


class PieceWriter(Protocol):
    """Takes pieces of a body where they arrive."""

    @property
    def is_ready(self) -> bool:
        """Whether ``write`` need not wait."""

    def write(self, data: bytes) -> None:
        """Take a piece that is not empty."""


class ServerAnswer(asyncio.Protocol):
    """Sends a request and takes its answer apart as it arrives. Event loop only.

    The body goes to a writer where it arrives, without a task switch, while that is ready.
    Otherwise ``receive`` returns it, and the server is not read until then.
    """

    def __init__(
        self,
        *request: bytes,
        silence: float,
        on_progress: Callable[[float], None] = lambda _now: None,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        """``request`` are its parts, one after the other.

        ``silence`` is how many seconds nothing may come; 0: for ever. ``on_sent`` is called when
        the system has all of the request.
        """
        self.status = 0
        self.headers: Headers = []
        self.num_pieces = 0
        self.last = b""  # the last piece of the body that was passed on
        self.writer: PieceWriter | None = None
        """Gets the body whenever that need not wait."""
        self._request = request
        self._silence = silence
        self._on_progress = on_progress
        self._on_sent = on_sent
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_head = False
        self._has_ended = False
        self._error: ServerFailed | None = None
        self._is_paused = False
        self._is_delimited_by_close = True
        self._wake: asyncio.Future[None] | None = None
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # The task's side

    async def connect(self, address: Address, seconds: float) -> None:
        """Send the request over a new connection. The caller closes it, whatever comes of it.

        Raises NotSent, or ServerFailed if there may have been a connection.
        """
        try:
            async with asyncio.timeout(seconds):
                if address.socket_path:
                    await self._loop.create_unix_connection(lambda: self, address.socket_path)
                else:
                    tls = _tls() if address.is_tls else None
                    await self._loop.create_connection(
                        lambda: self, address.host, address.port, ssl=tls
                    )
        except TimeoutError:
            failure = NotSent if self._transport is None else ServerFailed
            raise failure(f"no connection to {address.text} in {seconds:g} s") from None
        except OSError as error:
            raise NotSent(f"cannot connect to {address.text}: {error.strerror or error}") from None

    async def head(self) -> None:
        """Wait for the status and the headers. Raises ServerFailed."""
        while not self._has_head:
            await self._news()

    async def receive(self) -> tuple[bytes, bool]:
        """The next piece of the body, possibly empty, and true at its end.

        Raises ServerFailed after the last piece if the end is missing.
        """
        while not (self._pieces or self._has_ended):
            await self._news()
        return self._take(), self._has_ended

    def close(self) -> None:
        """End the connection, whatever is missing. Idempotent."""
        self._stop_timer()
        self._request = ()  # parser and protocol hold each other until a collection
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has another base class
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._transport.writelines(self._request)
        self._request = ()
        if not self._transport.get_write_buffer_size():
            self._on_sent()
        if self._silence:
            self._timer = self._loop.call_later(self._silence, self._check_silence)

    def resume_writing(self) -> None:
        # Nothing is left in the transport: that is its limit.
        self._on_sent()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._on_progress(self._heard)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ServerFailed(f"its answer is not HTTP: {error}"))
            return
        if not self._pieces:
            return
        if self.writer is not None and self._is_waiting and self.writer.is_ready:
            self.writer.write(self._take())
            return
        self._notify()
        may_pause = self._has_head and not self._has_ended and not self._is_paused
        if may_pause and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._has_ended or self._error is not None:
            return
        # llhttp does not report the end of a body that ends with its connection.
        if exc is None and self._has_head and self._is_delimited_by_close:
            self._end()
        else:
            self._fail(ServerFailed("it has closed the connection"))

    # Called by httptools

    def on_message_begin(self) -> None:
        """Reset what an interim answer (1xx) has set."""
        self.headers = []
        self._is_delimited_by_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        self.headers.append((lowered, value))
        if lowered in {b"content-length", b"transfer-encoding"}:
            self._is_delimited_by_close = False

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._has_head = True
            self._notify()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self._end()

    # Ends

    def _end(self) -> None:
        self._has_ended = True
        self._stop_timer()
        self._notify()

    def _fail(self, error: ServerFailed) -> None:
        if not self._has_ended and self._error is None:
            self._error = error
            self.close()
            self._notify()

    def _check_silence(self) -> None:
        # While nobody takes the body, the server is not read: it is not silent.
        now = self._loop.time()
        due = (now if self._is_paused else self._heard) + self._silence
        if now >= due:
            self._fail(Silent(f"it has sent nothing for {self._silence:g} s"))
        else:
            self._timer = self._loop.call_at(due, self._check_silence)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> bytes:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if data:
            self.num_pieces += 1
            self.last = data
            pieces.clear()
        return data

    async def _news(self) -> None:
        """Let the server go on until something has come of it. Raises ServerFailed."""
        if self._error is not None:
            raise self._error
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()
        self._wake = self._loop.create_future()
        await self._wake

    @property
    def _is_waiting(self) -> bool:
        """Whether the task waits in ``receive``, so that it holds nothing that was not written."""
        return self._wake is not None and not self._wake.done()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def request_head(
    method: str,
    target: bytes,
    headers: Headers,
    address: Address,
    *,
    key: str | None = None,
    size: int = 0,
) -> bytes:
    """The request line and the headers, through the empty line.

    ``target`` is without the base of the address. ``size`` is the body's.
    """
    lines = [
        b"%s %s%s HTTP/1.1" % (method.encode(), address.base.encode(), target),
        b"host: " + address.authority.encode(),
        b"connection: close",
        *(name + b": " + value for name, value in headers),
    ]
    if method == "POST" or size:
        lines.append(b"content-length: %d" % size)
    if key:
        lines.append(b"authorization: Bearer " + key.encode())
    return b"\r\n".join([*lines, b"", b""])


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def sickness(address: Address, path: str, seconds: float) -> str:
    """The fault of a server, in words; empty if ``path`` answers 200 within ``seconds``."""
    head = request_head("GET", path.encode(), [(b"accept", b"*/*")], address)
    answer = ServerAnswer(head, silence=seconds)
    try:
        with closing(answer):
            await answer.connect(address, seconds)
            await answer.head()
    except ServerFailed as failure:
        return str(failure)
    return "" if answer.status == 200 else f"{path} answers {answer.status}"
