import asyncio
import contextlib
import heapq
import itertools
import json
import socket

import anyio
import pytest
import uvicorn
from uvicorn.server import ServerState

from server.net.connection_limit import ConnectionLimit
from server.net.protocol import ConnectionLimits, LimitedProtocol
from tests.support.engines import DEADLINE


class ScriptedLoop:
    """The running loop, but its clock and timers move only when a test says so."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._timers = []
        self._order = itertools.count()
        self._now = 1000.0

    def time(self):
        return self._now

    def create_task(self, coroutine):
        return self._loop.create_task(coroutine)

    def call_soon(self, callback, *args):
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay, callback, *args):
        handle = asyncio.Handle(callback, args, self._loop)
        heapq.heappush(self._timers, (self._now + delay, next(self._order), handle))
        return handle

    def add_reader(self, file, callback, *args):
        self._loop.add_reader(file, callback, *args)

    def remove_reader(self, file):
        return self._loop.remove_reader(file)

    def advance(self, seconds):
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                handle._run()
        self._now = end

    @property
    def num_timers(self):
        return sum(not handle.cancelled() for _, _, handle in self._timers)


class EchoApp:
    """Reads the body and answers with its size. ``gate`` holds the answer, ``begin`` the reading.

    With ``parts``, the answer is these; each waits until the client can take more.
    """

    def __init__(self):
        self.begin = anyio.Event()
        self.begin.set()
        self.gate = anyio.Event()
        self.gate.set()
        self.parts = None
        self.is_early = False
        self.headers = []
        self.bodies = []
        self.scopes = []
        self.num_disconnects = 0
        self.num_started = 0
        self._changed = anyio.Event()

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        await self.begin.wait()
        body = b""
        while not self.is_early:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._disconnected()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        self.num_started += 1
        self._notify()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, receive, tasks.cancel_scope)
            await self.gate.wait()
            parts = self.parts or [b"%d" % len(body)]
            size = b"%d" % sum(map(len, parts))
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", size), *self.headers],
                }
            )
            for number, part in enumerate(parts, 1):
                more = number < len(parts)
                await send({"type": "http.response.body", "body": part, "more_body": more})
            tasks.cancel_scope.cancel()

    async def until(self, probe):
        with anyio.fail_after(DEADLINE):
            while not probe():
                await self._changed.wait()

    async def _watch(self, receive, scope):
        if self.is_early:
            return
        await receive()
        if not self.gate.is_set() or self.parts:
            self._disconnected()
        scope.cancel()

    def _disconnected(self):
        self.num_disconnects += 1
        self._notify()

    def _notify(self):
        self._changed.set()
        self._changed = anyio.Event()


class Client:
    """The other end of a protocol's socket."""

    def __init__(self, sock, protocol):
        self.protocol = protocol
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    async def send(self, data):
        with anyio.fail_after(DEADLINE):
            await self._loop.sock_sendall(self._socket, data)
            await self.seen()

    async def seen(self):
        """Until the protocol has taken what was sent, or does not read."""
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    async def request(self, body=b"", path="/", headers=""):
        await self.send(
            f"POST {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body
        )

    async def reply(self):
        """Status, headers and body of the next response."""
        while b"\r\n\r\n" not in self._buffer:
            assert await self._fill(), f"the connection has ended: {self._buffer}"
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers["content-length"])
        while len(self._buffer) < size:
            assert await self._fill()
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return int(first.split()[1]), headers, body

    async def refusal(self):
        """The status of a refusal, after which the connection has to end."""
        status, headers, body = await self.reply()
        assert headers["connection"] == "close"
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
        assert headers["x-request-id"]
        assert await self.ended()
        return status

    async def ended(self):
        """Wait for the end of the connection. Whether nothing else came before."""
        while await self._fill():
            pass
        return self._buffer == b""

    async def _fill(self):
        with anyio.fail_after(DEADLINE):
            try:
                data = await self._loop.sock_recv(self._socket, 65536)
            except ConnectionError:
                return False
        self._buffer += data
        return bool(data)

    def close(self):
        self._socket.close()


@pytest.fixture
def anyio_backend():
    """The event loop of ``roseinfer serve``."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def app():
    return EchoApp()


@pytest.fixture
async def loop():
    return ScriptedLoop()


@pytest.fixture
async def limit(loop):
    return ConnectionLimit(10, clock=loop.time)


@pytest.fixture
async def connect(app, loop, limit):
    """Connect clients to protocols; limits may be given."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
    config.load()
    state = ServerState()
    async with contextlib.AsyncExitStack() as stack:

        async def connect(*, buffer=None, **limits):
            ours, theirs = socket.socketpair()
            for sock in (ours, theirs):
                sock.setblocking(False)
                if buffer is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            assert limit.has_room()
            slot = limit.enter(ours.fileno())
            protocol = LimitedProtocol(config, state, {}, loop, ConnectionLimits(**limits), slot)
            real = asyncio.get_running_loop()
            transport, _ = await real.connect_accepted_socket(lambda: protocol, ours)
            stack.callback(transport.abort)
            client = Client(theirs, protocol)
            stack.callback(client.close)
            return client

        yield connect
        await stack.aclose()
        with anyio.fail_after(DEADLINE):
            while state.connections or state.tasks:
                await anyio.lowlevel.checkpoint()
        assert len(limit.open) == 0
        assert loop.num_timers == 0
