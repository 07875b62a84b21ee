"""Connections that send too much, too little, or nothing, and readers that do not read."""

from __future__ import annotations

import contextlib
import time

from compat_tests.support.http import Connection
from compat_tests.support.waiting import pause
from tests.bystander.arena import CHAT, Arena, abandon, attack, status_of


@attack("one header without end", is_quick=True)
def endless_header(arena: Arena) -> None:
    arena.sent()
    piece = b"a" * 65536
    deadline = time.monotonic() + 12 * arena.size
    answer = b""
    with arena.connect() as connection:
        with contextlib.suppress(OSError):
            connection.send_bytes(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx: ")
            while time.monotonic() < deadline:
                connection.send_bytes(piece)
        with contextlib.suppress(OSError):
            connection.socket.settimeout(1.0)
            answer = connection.socket.recv(4096)
    arena.note(status_of(answer))


@attack("headers without end, one line each")
def endless_headers(arena: Arena) -> None:
    arena.sent()
    lines = b"".join(b"x-%d: %d\r\n" % (i, i) for i in range(4000))
    answer = b""
    with arena.connect() as connection:
        with contextlib.suppress(OSError):
            connection.send_bytes(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n")
            for _ in range(arena.amount(200)):
                connection.send_bytes(lines)
        with contextlib.suppress(OSError):
            connection.socket.settimeout(1.0)
            answer = connection.socket.recv(4096)
    arena.note(status_of(answer))


@attack("half-sent requests on 200 connections", is_quick=True, is_flood=True)
def half_sent(arena: Arena) -> None:
    data = arena.whole(CHAT, arena.chat("x" * 200))
    with contextlib.ExitStack() as stack:
        for number in range(arena.amount(200)):
            arena.sent()
            connection = stack.enter_context(arena.connect())
            connection.send_bytes(data[: 1 + number * (len(data) - 1) // 200])
        pause(2 * arena.size)


@attack("headers and bodies that drip, 50 connections")
def drip(arena: Arena) -> None:
    data = arena.whole(CHAT, arena.chat("x" * 200))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(arena.connect()) for _ in range(50)]
        arena.sent(50)
        for byte in data[: arena.amount(100)]:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.send_bytes(bytes([byte]))
            pause(0.1)


@attack("1,100 silent sockets under 1,024 descriptors", num_descriptors=1024, is_flood=True)
def silent_sockets(arena: Arena) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            arena.sent()
            with contextlib.suppress(OSError):
                stack.enter_context(arena.connect(timeout=5))
        pause(6)


@attack("connections opened and closed, 2,000 times", is_flood=True)
def churn(arena: Arena) -> None:
    def once(number: int) -> None:
        arena.sent()
        with arena.connect() as connection:
            if number % 3 == 0:
                connection.send_bytes(b"GET")
            if number % 2 == 0:
                abandon(connection)

    arena.together(once, range(arena.amount(2000)), width=32)


@attack("streams that nobody reads, n=8", is_quick=True)
def stalled_readers(arena: Arena) -> None:
    body = arena.chat(n=8, max_tokens=1500, ignore_eos=True, stream=True)
    with contextlib.ExitStack() as stack:
        for _ in range(arena.amount(4, least=2)):
            arena.sent()
            connection = stack.enter_context(arena.connect(receive_buffer=2048))
            connection.send("POST", CHAT, body)
        pause(8 * arena.size)


@attack("a reader of one byte at a time")
def slow_reader(arena: Arena) -> None:
    arena.sent()
    body = arena.chat(n=8, max_tokens=1500, ignore_eos=True, stream=True)
    with arena.connect(receive_buffer=2048) as connection:
        connection.send("POST", CHAT, body)
        deadline = time.monotonic() + 8 * arena.size
        while time.monotonic() < deadline:
            connection.socket.recv(1)
            pause(0.01)


@attack("pipelined requests, client leaves", is_quick=True)
def pipelined(arena: Arena) -> None:
    long = arena.whole(CHAT, arena.chat(n=16, max_tokens=1500, ignore_eos=True))

    def send(_: int) -> None:
        arena.sent()
        with arena.connect() as connection:
            connection.send_bytes(long + long)
            pause(0.3)

    arena.together(send, range(arena.amount(8, least=2)))


@attack("pipelined requests without end")
def endless_pipeline(arena: Arena) -> None:
    one = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    arena.sent()
    deadline = time.monotonic() + 5 * arena.size
    with arena.connect(timeout=2) as connection, contextlib.suppress(OSError):
        while time.monotonic() < deadline:
            connection.send_bytes(one * 500)


@attack("uploads that stop in the middle, 32 MB declared")
def stopped_uploads(arena: Arena) -> None:
    head = arena.head(CHAT, 30_000_000) + b'{"messages":[{"role":"user","content":"'
    with contextlib.ExitStack() as stack:
        for _ in range(arena.amount(20)):
            arena.sent()
            connection: Connection = stack.enter_context(arena.connect(timeout=3))
            with contextlib.suppress(OSError):
                connection.send_bytes(head + b"x" * 4_000_000)
        pause(1)
