"""Watched: runs an ASGI application until it returns, its client leaves, or its time is over."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import DeadlineExceeded
from server.admission.admission import Ticket
from server.http.errors import APIError

HEADER = b"x-request-timeout"
MAX_SECONDS = 86_400.0


class Watched:
    """Listens for the disconnect of a client from the first byte of its request to the answer's.

    The application reads the body through ``receive``. From its end on, a task of this object
    listens, and a disconnect cancels the application wherever it is.
    """

    def __init__(self, receive: Receive, *, on_body: Callable[[int], None] | None = None) -> None:
        """``on_body`` gets the size of each piece of the body. It may raise to refuse the rest."""
        self.is_uploaded = False  # the whole body has arrived
        self.was_left = False  # the client left while the application ran, after the body's end
        self._receive = receive
        self._on_body = on_body
        self._scope = anyio.CancelScope()
        self._listener: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        """Run the application. It has ended without an exception if it was cancelled."""
        try:
            with self._scope:
                await app(scope, self.receive, send)
        finally:
            if self._listener is not None:
                self._listener.cancel()
            self._on_body = self._listener = None  # a cancelled task refers to this object

    def cancel(self) -> None:
        """Cancel the application."""
        self._scope.cancel()

    async def receive(self) -> Any:
        """The next piece of the body. After its end the disconnect, which cancels the caller."""
        if self.is_uploaded:
            await anyio.sleep_forever()
        message = await self._receive()
        if message["type"] == "http.request":
            if self._on_body is not None:
                self._on_body(len(message["body"]))
            if not message["more_body"]:
                self.is_uploaded = True
                self._listener = asyncio.get_running_loop().create_task(self._listen())
        return message

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.was_left = True
        self.cancel()


def seconds_given(headers: Iterable[tuple[bytes, bytes]], server_seconds: float) -> float | None:
    """Seconds until the deadline: the client's, but no more than the server's. None: no deadline.

    ``server_seconds`` 0 is no limit. Raises APIError for a header that is not a number of seconds.
    """
    most = server_seconds or None
    wanted = next((value for name, value in headers if name == HEADER), None)
    if wanted is None:
        return most
    try:
        seconds = float(wanted)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_SECONDS:
        raise APIError(
            400,
            f"X-Request-Timeout must be a number of seconds above 0 and up to {MAX_SECONDS:g}.",
            param="X-Request-Timeout",
            code="invalid_value",
        )
    return seconds if most is None else min(seconds, most)


@contextmanager
def deadline(ticket: Ticket, watched: Watched) -> Iterator[None]:
    """Bound the time of an application that ``watched`` runs, if the ticket has a deadline.

    A request that the engine has ends with an error: 504, or an error event if its stream has
    begun. One that has not got so far is cancelled: 408 if its body has not arrived, else 504.
    Raises APIError and DeadlineExceeded for these two.
    """
    seconds, is_over = ticket.seconds, False
    if seconds is None:
        yield
        return
    error = DeadlineExceeded(f"The request's time of {seconds:g} s is over.")

    def expire() -> None:
        nonlocal is_over
        is_over = True
        if not ticket.fail(error):
            watched.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    finally:
        timer.cancel()
    if not is_over or ticket.trace.status is not None:  # it has begun to answer
        return
    if watched.is_uploaded:
        raise DeadlineExceeded(str(error), retry_after=ticket.admission.choices.retry_after(1))
    raise APIError(
        408,
        f"The body did not arrive within {seconds:g} s.",
        type_="timeout_error",
        code="request_timeout",
        headers={"connection": "close"},
    )
