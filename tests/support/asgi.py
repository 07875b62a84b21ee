"""One HTTP exchange with an ASGI application, driven by hand: no server, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from server.admission.deadline import Watched
from server.net.body_writer import EXTENSION
from tests.support.engines import DEADLINE


class Exchange:
    """A client whose every move the test decides. Checks that the application keeps to ASGI.

    The body arrives in ``chunks``; after it the client stays until ``disconnect``. ``block``
    makes ``send`` wait, as it does for a client that does not read, until ``unblock``.
    """

    def __init__(
        self,
        method: str = "POST",
        path: str = "/",
        *,
        chunks: Iterable[bytes] = (b"",),
        headers: Mapping[str, str] | None = None,
        is_complete: bool = True,
    ) -> None:
        """``is_complete`` false: the client never sends the end of the body.

        Without ``headers``, a POST says that its body is JSON.
        """
        if headers is None:
            headers = {"content-type": "application/json"} if method == "POST" else {}
        headers = {"host": "localhost", **headers}
        path, _, query = path.partition("?")
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._incoming = [
            {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
        ]
        if self._incoming and is_complete:
            self._incoming[-1]["more_body"] = False
        self._end = anyio.Event()
        self._has_end = bool(self._incoming) and not is_complete
        self.messages: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self.is_done = False
        self.is_blocked = False
        self._is_sending = False
        self._gone = anyio.Event()
        self._gate: anyio.Event | None = None
        self._changed = anyio.Event()

    # The test's side.

    def disconnect(self) -> None:
        """Leave."""
        self._gone.set()

    def hold_end(self) -> None:
        """Send the end of the body only when ``finish`` is called."""
        self._incoming[-1]["more_body"] = self._has_end = True

    def finish(self) -> None:
        """Send the end of a body that was not complete."""
        assert self._has_end
        self._incoming.append({"type": "http.request", "body": b"", "more_body": False})
        self._end.set()

    def block(self) -> None:
        """Read nothing from now on."""
        self._gate = anyio.Event()

    def unblock(self) -> None:
        """Read again."""
        assert self._gate is not None
        self._gate.set()
        self._gate = None

    async def until(self, is_true: Callable[[Exchange], object]) -> None:
        """Wait for the application to have done something."""
        with anyio.fail_after(DEADLINE):
            while not is_true(self):
                await self._changed.wait()

    async def done(self) -> Exchange:
        """Wait for the application to return; what it raised is in ``failure``."""
        await self.until(lambda exchange: exchange.is_done)
        return self

    @property
    def status(self) -> int | None:
        """The status, once it has been sent."""
        return self.messages[0]["status"] if self.messages else None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, once they have been sent."""
        return {k.decode().lower(): v.decode() for k, v in self.messages[0]["headers"]}

    @property
    def writes(self) -> list[bytes]:
        """The body, write by write."""
        return [message["body"] for message in self.messages[1:]]

    @property
    def body(self) -> bytes:
        """The body so far."""
        return b"".join(self.writes)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def has_ended(self) -> bool:
        """Whether the application has said that the body is complete."""
        return len(self.messages) > 1 and not self.messages[-1].get("more_body", False)

    def give_writer(self) -> None:
        """Offer a BodyWriter, whose writes are messages like others and counted besides."""
        self.num_direct_writes = 0
        self.scope["extensions"] = {EXTENSION: _Writer(self)}

    # The application's side.

    async def run(self, app: Any) -> None:
        """Call the application."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failure = error
        finally:
            self.is_done = True
            self._notify()

    async def receive(self) -> dict[str, Any]:
        if self._incoming:
            return self._incoming.pop(0)
        if self._has_end:
            async with anyio.create_task_group() as tasks:
                for event in (self._gone, self._end):
                    tasks.start_soon(self._wait_and_cancel, event, tasks.cancel_scope)
            self._has_end = False
            if self._incoming:
                return self._incoming.pop(0)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _wait_and_cancel(self, event: anyio.Event, scope: anyio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def send(self, message: dict[str, Any]) -> None:
        assert not self._is_sending, "two sends at once"
        assert not self.has_ended, "a message after the end"
        expected = "http.response.body" if self.messages else "http.response.start"
        assert message["type"] == expected
        self._is_sending = True
        try:
            if self._gate is not None:
                self.is_blocked = True
                self._notify()
                await self._gate.wait()
                self.is_blocked = False
            self.messages.append(message)
            self._notify()
            await anyio.lowlevel.checkpoint()
        finally:
            self._is_sending = False

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def watched(app: Any) -> Any:
    """Wrap an application whose body has been read as the server's routes are wrapped."""

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await app(scope, receive, send)

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await Watched(receive).run(reading, scope, send)

    return wrapped


async def ask(
    app: Any, method: str, path: str, body: object = b"", headers: Mapping[str, str] | None = None
) -> Exchange:
    """One whole exchange; ``body`` is bytes, or what becomes JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    exchange = Exchange(method, path, chunks=[data], headers=headers)
    with anyio.fail_after(DEADLINE):
        await exchange.run(app)
    if exchange.failure is not None:
        raise exchange.failure
    assert exchange.has_ended
    return exchange


class _Writer:
    """What BodyWriter is for a connection."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def is_ready(self) -> bool:
        exchange = self._exchange
        return bool(exchange.messages) and exchange._gate is None and not exchange.has_ended

    def write(self, data: bytes) -> None:
        assert data
        assert self.is_ready
        self._exchange.num_direct_writes += 1
        self._exchange.messages.append(
            {"type": "http.response.body", "body": data, "more_body": True}
        )
