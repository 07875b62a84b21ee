"""Watched: runs an ASGI application until it returns, its client leaves, or its time is over."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Any

import anyio
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send

from core.contract.errors import DeadlineExceeded
from server.admission.admission import Ticket
from server.http.errors import APIError

DISCONNECT: HTTPReceiveMessage = {"type": "http.disconnect"}

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
        self._has_left = anyio.Event()
        self._tasks = anyio.create_task_group()

    async def run(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        """Run the application. An exception propagates as itself, not as an exception group."""
        failure: Exception | None = None
        async with self._tasks:
            try:
                await app(scope, self.receive, send)
            except Exception as error:  # noqa: BLE001 - the task group would wrap it
                failure = error
            self.cancel()
        self._on_body = None  # what anyio keeps of a cancelled task may refer to this object
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # it has this frame in its traceback

    def cancel(self) -> None:
        """Cancel the application."""
        self._tasks.cancel_scope.cancel()

    async def receive(self) -> Any:
        """The next piece of the body; after its end, the disconnect."""
        if self.is_uploaded:
            await self._has_left.wait()
            return DISCONNECT
        message = await self._receive()
        if message["type"] == "http.request":
            if self._on_body is not None:
                self._on_body(len(message["body"]))
            if not message["more_body"]:
                self.is_uploaded = True
                self._tasks.start_soon(self._listen)
        return message

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.was_left = True
        self._has_left.set()
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


def start_timer(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """Call back after so many seconds, on this event loop."""
    return asyncio.get_running_loop().call_later(seconds, callback)


async def run_until_deadline(
    seconds: float, watched: Watched, ticket: Ticket, app: ASGIApp, scope: Scope, send: Send
) -> None:
    """Run the application for so many seconds at most.

    A request that the engine has ends with an error: 504, or an error event if its stream has
    begun. One that has not got so far is cancelled: 408 if its body has not arrived, else 504.
    Raises APIError and DeadlineExceeded for these two.
    """
    is_over = False
    error = DeadlineExceeded(f"The request's time of {seconds:g} s is over.")

    def expire() -> None:
        nonlocal is_over
        is_over = True
        if not ticket.fail(error):
            watched.cancel()

    timer = start_timer(seconds, expire)
    try:
        await watched.run(app, scope, send)
    finally:
        timer.cancel()
    if not is_over or ticket.trace.status is not None:  # it has begun to answer
        return
    if watched.is_uploaded:
        raise DeadlineExceeded(str(error), retry_after=ticket.retry_after())
    raise APIError(
        408,
        f"The body did not arrive within {seconds:g} s.",
        type_="timeout_error",
        code="request_timeout",
        headers={"connection": "close"},
    )
