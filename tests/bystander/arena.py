"""Arena: what an attack gets to work with, and the registry of attacks."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from compat_tests.support.api import CHAT, COMPLETIONS, Json, user
from compat_tests.support.http import Body, Connection, ConnectionEnded, encode
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import pause

ATTACKER = "127.0.0.2"
"""The address that attacks come from: another client than the bystanders."""

LONGEST_FAULT = 3000
"""Characters of a report: an answer, and the request that it was given to."""

T = TypeVar("T")


class Arena:
    """One attack's tools. Counts what was sent (``num_sent``) and how it was answered.

    ``statuses`` has HTTP statuses; 0 stands for a connection that ended without an answer.
    ``size`` is 1 in the soak and less in the quick half: attacks multiply their amounts by it.
    ``may_fail``: a 500 is what the attack asks for. ``number`` counts the tries, so that a second
    one does not find the caches of the first.
    """

    def __init__(self, server: ServerProcess, size: float, number: int = 0) -> None:
        self.server = server
        self.number = number
        self.size = size
        self.may_fail = False
        self.num_sent = 0
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []
        self.slowest_refusal = 0.0
        """Seconds until the last 429 or 503 of ``post`` and ``all_at_once``."""
        self._lock = threading.Lock()

    def amount(self, full: int, least: int = 1) -> int:
        """``full`` in the soak, a part of it in the quick half."""
        return max(least, int(full * self.size))

    def fault(self, text: str) -> None:
        """Report what must not happen."""
        with self._lock:
            self.faults.append(text[:LONGEST_FAULT])

    def note(self, status: int, text: str = "", *, sent: bytes = b"") -> None:
        """Count an answer. A 5xx other than 503 is a fault; ``sent`` is what was answered so."""
        with self._lock:
            self.statuses[status] += 1
        if status >= 500 and status != 503 and not self.may_fail:
            self.fault(f"{status}: {text}" + (f"\nto {sent!r}" if sent else ""))

    @contextmanager
    def connect(
        self, *, timeout: float = 30.0, receive_buffer: int | None = None
    ) -> Iterator[Connection]:
        """A connection from the attacker's address."""
        with self.server.connect(
            timeout=timeout, receive_buffer=receive_buffer, source=ATTACKER
        ) as connection:
            yield connection

    def sent(self, num: int = 1) -> None:
        with self._lock:
            self.num_sent += num

    # Whole requests.

    def post(
        self,
        path: str,
        body: Body,
        *,
        timeout: float = 30.0,
        headers: dict[str, str | None] | None = None,
    ) -> tuple[int, bytes]:
        """POST and read everything. Status 0: no answer."""
        self.sent()
        status, data = 0, b""
        begun = time.monotonic()
        try:
            with self.connect(timeout=timeout) as connection:
                reply = connection.request("POST", path, body, headers)
                status = reply.status
                data = reply.body
                self._answered(status, time.monotonic() - begun)
        except (OSError, ConnectionEnded) as error:
            data = f"{type(error).__name__}: {error}".encode()
        self.note(status, data[:300].decode(errors="replace"))
        return status, data

    def leave(self, path: str, body: Body, *, after: float, reset: bool = False) -> None:
        """POST, wait ``after`` seconds, and leave without reading."""
        self.sent()
        try:
            with self.connect() as connection:
                connection.send("POST", path, body)
                pause(after)
                if reset:
                    abandon(connection)
        except OSError:  # the server may refuse before it has read everything
            self.note(0)

    def raw(self, data: bytes, *, wait: float = 1.0) -> bytes:
        """Send bytes and return what comes back within ``wait`` seconds, or before the end."""
        self.sent()
        answer = bytearray()
        try:
            with self.connect(timeout=wait) as connection:
                connection.send_bytes(data)
                deadline = time.monotonic() + wait
                while time.monotonic() < deadline and not is_complete(answer):
                    piece = connection.socket.recv(65536)
                    if not piece:
                        break
                    answer += piece
        except OSError:
            pass
        self.note(status_of(answer), answer[:300].decode(errors="replace"), sent=data)
        return bytes(answer)

    def all_at_once(self, requests: Sequence[bytes], *, wait: float) -> None:
        """Open a connection for each request, send them all, then read all the answers."""
        self.sent(len(requests))
        answers: dict[Any, bytearray] = {}
        begun = time.monotonic()
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            for data in requests:
                client = stack.enter_context(socket.socket())
                client.bind((ATTACKER, 0))
                client.setblocking(False)
                client.connect_ex((self.server.host, self.server.port))
                selector.register(client, selectors.EVENT_WRITE, data)
                answers[client] = bytearray()
            deadline = time.monotonic() + wait
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(0.5):
                    answer = answers[key.fileobj]
                    if exchange(selector, key, answer):
                        self._answered(status_of(answer), time.monotonic() - begun)
        for answer in answers.values():
            self.note(status_of(answer), answer[:300].decode(errors="replace"))

    def _answered(self, status: int, seconds: float) -> None:
        if status in {429, 503}:
            with self._lock:
                self.slowest_refusal = max(self.slowest_refusal, seconds)

    def together(
        self, function: Callable[[T], Any], items: Iterable[T], *, width: int = 16
    ) -> None:
        """Call with every item, ``width`` at a time, behind the server and the bystanders.

        Attackers have machines of their own; here they share the server's processors.
        """
        with ThreadPoolExecutor(width, initializer=yield_processors) as pool:
            list(pool.map(function, items))

    # Bodies.

    def chat(self, content: Any = "Tell me a story.", **fields: Any) -> Json:
        return {"messages": user(content), "max_tokens": 16} | fields

    def completion(self, prompt: Any = "Once", **fields: Any) -> Json:
        return {"prompt": prompt, "max_tokens": 16} | fields

    def head(self, path: str, length: int | None, *, extra: str = "") -> bytes:
        """The head of a POST of JSON, without its body."""
        size = "" if length is None else f"content-length: {length}\r\n"
        return (
            f"POST {path} HTTP/1.1\r\nhost: {self.server.host}:{self.server.port}\r\n"
            f"content-type: application/json\r\n{size}{extra}\r\n"
        ).encode("latin-1")

    def whole(self, path: str, body: Json) -> bytes:
        """A whole POST."""
        data = encode(body)
        return self.head(path, len(data)) + data


def yield_processors() -> None:
    """Give this thread the least priority; on Linux a thread has its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def exchange(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, answer: bytearray
) -> bool:
    """Send a connection's request, or read a piece of its answer; whether that was the last."""
    client: Any = key.fileobj
    piece = b""
    try:
        if key.data:
            client.sendall(key.data)
            selector.modify(client, selectors.EVENT_READ, None)
            return False
        piece = client.recv(65536)
    except OSError:  # reset
        piece = b""
    answer += piece
    is_last = not piece or is_complete(answer)
    if is_last:
        selector.unregister(client)
    return is_last


def abandon(connection: Connection) -> None:
    """Let ``close`` send a reset."""
    linger = struct.pack("ii", 1, 0)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def status_of(answer: bytes | bytearray) -> int:
    """The status of a raw answer; 0 without one."""
    head = bytes(answer[:12])
    return int(head[9:12]) if head.startswith(b"HTTP/1.1 ") and head[9:12].isdigit() else 0


def is_complete(answer: bytes | bytearray) -> bool:
    """Whether a raw answer has all of its body."""
    head, end, body = bytes(answer).partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return bool(end) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))


@dataclass(frozen=True)
class Attack:
    """One hostile client.

    ``may_refuse``: the queue is filled on purpose, so a bystander may be answered 429.
    ``is_flood``: there are more connections or requests than a server takes, without much work in
    any. It need not be refused fast, only in seconds: see ``Stand``.
    ``flags``, ``num_descriptors`` and ``is_faulty`` (compat_tests/support/faulty_server.py) ask for
    a server of its own. The faulty one answers 500 to the requests that ask for it. ``kind`` is
    what the attacked server makes: text, or ``embed`` or ``score``; or ``route``, for one of text
    behind a router.
    """

    name: str
    run: Callable[[Arena], None]
    is_quick: bool = False
    may_refuse: bool = False
    is_flood: bool = False
    flags: tuple[str, ...] = ()
    num_descriptors: int | None = None
    is_faulty: bool = False
    kind: str = "text"

    @property
    def server_options(self) -> dict[str, Any]:
        return {"num_descriptors": self.num_descriptors, "is_faulty": self.is_faulty}

    @property
    def has_own_server(self) -> bool:
        return bool(self.flags) or any(self.server_options.values())


ATTACKS: dict[str, Attack] = {}


def attack(name: str, **options: Any) -> Callable[[Callable[[Arena], None]], Callable[..., None]]:
    """Register an attack."""

    def register(function: Callable[[Arena], None]) -> Callable[[Arena], None]:
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, function, **options)
        return function

    return register


__all__ = [
    "ATTACKS",
    "CHAT",
    "COMPLETIONS",
    "Arena",
    "Attack",
    "abandon",
    "attack",
    "is_complete",
    "status_of",
]
