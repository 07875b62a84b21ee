"""Watched: runs an ASGI application until it returns or its client disconnects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send

DISCONNECT: HTTPReceiveMessage = {"type": "http.disconnect"}


class Watched:
    """Listens for the disconnect of a client from the first byte of its request to the answer's.

    The application reads the body through ``receive``. From its end on, a task of this object
    listens, and a disconnect cancels the application wherever it is.
    """

    def __init__(self, receive: Receive, *, on_body: Callable[[int], None] | None = None) -> None:
        """``on_body`` gets the size of each piece of the body. It may raise to refuse the rest."""
        self.is_uploaded = False
        """Whether the whole body has arrived."""
        self.was_left = False
        """Whether the client has left while the application ran, after the end of the body."""
        self._receive = receive
        self._on_body = on_body or _ignore
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
        self._on_body = _ignore  # what anyio keeps of a cancelled task may refer to this object
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


def _ignore(_size: int) -> None:
    """Nobody counts the body."""
