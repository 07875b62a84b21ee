"""Door: answers requests that are turned away before their connections are opened."""

from __future__ import annotations

import contextlib
import socket

import httptools

from server.connections.limits import ConnectionLimits
from server.connections.turn_away import Headers, IsFull, TurnAway

MAX_SIZE = 32 * 1024
"""Bytes of a request with its body that are looked at."""


class Door:
    """Answers the first request of a connection, if all of it has arrived.

    To open a connection costs several times as much as such an answer. Event loop only.
    """

    def __init__(self, turn_away: TurnAway, limits: ConnectionLimits, is_full: IsFull) -> None:
        """``is_full`` says whether ``turn_away`` answers most requests now."""
        self.is_full = is_full
        self._turn_away = turn_away
        self.limits = limits

    def try_answer(self, connection: socket.socket) -> bool:
        """Answer the request if it is turned away. The caller then ends the connection.

        Returns False if it is not; then nothing was read from the connection.
        """
        if not self.is_full():
            return False
        try:
            data = connection.recv(MAX_SIZE, socket.MSG_PEEK)
        except OSError:
            return False
        request = _Request(data, self.limits)
        if not request.is_whole:
            return False
        answer = self._turn_away(
            request.method, request.url, request.headers, _client_of(connection)
        )
        if answer is None:
            return False
        response = answer(is_last=True)
        with contextlib.suppress(OSError):  # the client may have left
            connection.recv(MAX_SIZE)
            connection.send(response)
        return True


class _Request:
    """One parsed request. ``is_whole``: the bytes are this request and nothing else.

    One that needs more than an answer (an upgrade, a client that waits for 100, a head above the
    limits) is never whole.
    """

    __slots__ = ("_has_head", "_is_begun", "_is_complete", "_is_plain", "headers", "method", "url")

    def __init__(self, data: bytes, limits: ConnectionLimits) -> None:
        self.method = self.url = b""
        self.headers: Headers = []
        self._is_begun = self._has_head = self._is_complete = False
        self._is_plain = True
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_plain = False
            return
        self.method = parser.get_method()
        self._is_plain &= (
            not parser.should_upgrade()
            and len(self.headers) <= limits.max_headers
            and len(self.url) <= limits.max_url_size
        )

    @property
    def is_whole(self) -> bool:
        return self._is_complete and self._is_plain

    # The parser's callbacks

    def on_message_begin(self) -> None:
        self._is_plain &= not self._is_begun
        self._is_begun = True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # trailers
        name = name.lower()
        self._is_plain &= name != b"expect"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_message_complete(self) -> None:
        self._is_complete = True


def _client_of(connection: socket.socket) -> tuple[str, int] | None:
    """The client's address, as uvicorn finds it; None on a Unix socket."""
    try:
        name = connection.getpeername()
    except OSError:
        return None
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
