"""LimitedProtocol: uvicorn's HTTP/1.1 with limits and deadlines.

One request is served at a time. A second request that arrives while the first is being answered
ends the connection after that answer, and is dropped: reading goes on, so that a client that
leaves is noticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.http.apis import ID_KEY
from server.http.errors import CUT_KEY, APIError
from server.net import refusal
from server.net.body_writer import EXTENSION, BodyWriter, with_writer
from server.net.connection_limit import Slot

logger = logging.getLogger("roseinfer.connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Sizes in bytes, times in seconds."""

    max_head_size: int = 64 * 1024  # also of trailers, a chunk's extensions, or beside an answer
    max_headers: int = 256
    max_url_size: int = 8 * 1024
    max_framing_size: int = 256 * 1024  # chunk sizes and line ends beyond the size of the body
    head_timeout: float = 10.0  # from the first byte of a head to its end
    idle_timeout: float = 60.0  # before the first request, and between two
    body_grace: float = 30.0  # for a body, and one second more for each ``body_rate`` bytes
    body_rate: int = 1024
    write_timeout: float = 60.0  # for a client to read enough that the server can write again
    linger_timeout: float = 5.0  # for a client to read a refusal while what it sends is dropped


class Phase(Enum):
    """The state of a connection."""

    REQUEST = auto()  # no byte of one has arrived
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    LAST_ANSWER = auto()  # the connection ends after it; what arrives is dropped
    END = auto()  # of the connection; what arrives is dropped


class LimitedProtocol(HttpToolsProtocol):
    """One connection, which has its ``slot`` of the limit. Event loop only."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        slot: Slot,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.app = with_writer(self.app)
        self._slot = slot
        self._limits = limits
        self._is_new = True  # no request has been answered
        self._phase = Phase.REQUEST
        self._deadline: asyncio.TimerHandle | None = None  # of head, body and lingering
        self._write_deadline: asyncio.TimerHandle | None = None
        self._data_size = 0  # of the bytes being parsed
        self._head_size = 0
        self._num_headers = 0
        self._body_start = 0.0
        self._body_size = 0
        self._framing_size = 0
        self._barren_size = 0  # since the last byte of the body: chunk extensions, trailers
        self._dropped_size = 0

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._phase = Phase.END
        self._stop_deadline()
        self._stop_write_deadline()
        self._slot.leave()

    def data_received(self, data: bytes) -> None:
        """Parse, then check sizes and start the deadline of what is incomplete."""
        if self._phase in {Phase.LAST_ANSWER, Phase.END}:
            self._dropped_size += len(data)  # a client that sends much is not waiting for it
            is_too_much = self._dropped_size > self._limits.max_head_size
            if self._phase is Phase.LAST_ANSWER and is_too_much:
                self.transport.abort()
            return
        self._data_size = len(data)
        body_size = self._body_size
        was_body = self._phase is Phase.BODY
        self._parse(data)
        if self._phase is Phase.HEAD:
            self._continue_head()
        elif self._phase is Phase.BODY:
            self._continue_body(self._body_size - body_size if was_body else None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_deadline()

    # The parser's callbacks. An exception in one stops it.

    def on_message_begin(self) -> None:
        """Begin a head. A request beside a running answer ends the connection after it."""
        if self._phase in {Phase.ANSWER, Phase.END}:  # END: by a request in the same bytes
            raise refusal.bad_request()
        self._phase = Phase.HEAD
        self._head_size = self._num_headers = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.max_url_size:
            raise refusal.long_url()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Limit the number of headers. Trailers are dropped."""
        if self._phase is not Phase.HEAD:
            return
        self._num_headers += 1
        if self._num_headers > self._limits.max_headers:
            raise refusal.large_head()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._head_size + self._data_size > self._limits.max_head_size:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self._limits.max_head_size:
                raise refusal.large_head()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise refusal.bad_request()
            return
        self._slot.stop_waiting()
        if self._slot.limit.is_exceeded:
            self.scope["state"][refusal.BUSY_KEY] = True
        super().on_headers_complete()
        self.scope["extensions"] = cast("Any", {EXTENSION: BodyWriter(self.cycle)})
        self._phase = Phase.BODY
        self._body_size = self._framing_size = self._barren_size = 0
        self._stop_deadline()
        if self._slot.limit.is_crowded:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._phase is Phase.HEAD:  # a wish for another protocol
            return
        self._is_new = False
        super().on_message_complete()
        self._stop_deadline()
        self._phase = Phase.ANSWER
        if self.cycle.response_started:  # it has said that the connection ends
            self.cycle.keep_alive = False

    # uvicorn's callback

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:  # the deadline of this class does the same
            self.timeout_keep_alive_task.cancel()
        self._limit_writing()
        if self._phase is Phase.BODY:
            self._linger()
        elif self.transport.is_closing():
            self._slot.linger(self.transport.abort)
        elif self._phase is Phase.ANSWER:
            self._wait_for_request()

    # Parsing

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse(self._head_without_upgrade() + data[upgrade.args[0] :])
        except httptools.HttpParserError as error:  # bytes that are no HTTP, or from a callback
            if self._phase is Phase.ANSWER:
                self._phase = Phase.LAST_ANSWER
                self.cycle.keep_alive = False
            elif self._phase is not Phase.END:
                reason = error.__context__
                self._refuse(reason if isinstance(reason, APIError) else refusal.bad_request())

    def _head_without_upgrade(self) -> bytes:
        """The head without the wish for another protocol, to be parsed again.

        RFC 9110, section 7.8: a server may ignore the wish. Clients that prefer HTTP/2
        (``Upgrade: h2c``) express it together with a whole request, after which the parser would
        take no body.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join([*lines, b"", b""])

    # Phases

    def _wait_for_request(self) -> None:
        self._phase = Phase.REQUEST
        self._slot.wait(self._end_for_another)
        self._end_by(self._limits.idle_timeout, self.transport.close)

    def _continue_head(self) -> None:
        self._head_size += self._data_size
        if self._head_size > self._limits.max_head_size:
            self._refuse(refusal.large_head())
        elif self._head_size == self._data_size:  # its first bytes
            self._slot.wait(self._end_for_another)  # it is the youngest again
            self._end_by(self._limits.head_timeout, lambda: self._refuse(refusal.late_head()))

    def _continue_body(self, new_size: int | None) -> None:
        """``new_size`` is None if the head came with these bytes."""
        if new_size is None:
            self._body_start = self.loop.time()
            self._end_by(self._limits.body_grace, self._on_late_body)
            return
        self._framing_size += self._data_size - new_size
        self._barren_size = 0 if new_size else self._barren_size + self._data_size
        if (
            self._barren_size > self._limits.max_head_size
            or self._framing_size > self._limits.max_framing_size + self._body_size
        ):
            self._refuse(refusal.large_framing())

    # Ends

    def _refuse(self, error: APIError) -> None:
        """Answer instead of the application, and end the connection."""
        logger.info("refused a request: %d %s", error.status, error)
        cycle = self.cycle
        state: dict[str, Any] = {}
        if cycle is not None and not cycle.response_complete:
            state = cycle.scope["state"]
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        state[CUT_KEY] = error
        self.transport.write(refusal.closing_response(error, state.get(ID_KEY)))
        self._linger()

    def _linger(self) -> None:
        """End the connection, but let a client that is still sending read the answer first.

        Closing a socket that holds unread bytes resets the connection, and the client loses what
        it has not read.
        """
        if self._phase is Phase.END or self.transport.is_closing():
            return
        self._phase = Phase.END
        self._slot.linger(self.transport.abort)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._end_by(self._limits.linger_timeout, self.transport.abort)

    def _end_for_another(self) -> None:
        """End the connection for a new one.

        A client whose first request is on its way reads 503. One with an idle connection sends
        its next request again, as RFC 9112, section 9.5, expects.
        """
        if self._phase is Phase.HEAD or self._is_new:
            self.transport.write(refusal.closing_response(refusal.busy()))
        self._phase = Phase.END
        self._slot.linger(self.transport.abort)
        self._stop_deadline()
        if self.transport.get_write_buffer_size():
            self._limit_writing()
            self.transport.close()
        else:
            self.transport.abort()  # at once, also where TLS would wait for the client

    # Deadlines

    def _end_by(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so many seconds, in place of what was to be called."""
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, callback)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _limit_writing(self) -> None:
        if self._write_deadline is None and self.transport.get_write_buffer_size():
            self._write_deadline = self.loop.call_later(
                self._limits.write_timeout, self._on_late_write
            )

    def _stop_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _on_late_body(self) -> None:
        limits, now = self._limits, self.loop.time()
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._body_start = now  # the application has not asked for more
        due = self._body_start + limits.body_grace + self._body_size / limits.body_rate
        if now < due:
            self._end_by(due - now, self._on_late_body)
        else:
            self._refuse(refusal.late_body())

    def _on_late_write(self) -> None:
        self._write_deadline = None
        if self.transport.get_write_buffer_size():
            logger.info("ended a connection whose client did not read")
            self.transport.abort()
