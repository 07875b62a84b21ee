"""The bystanders: three clients of one server, in a process of their own.

``python -m tests.bystander.witness HOST PORT NUM_TOKENS [KIND]`` starts

- the *neighbour*, which streams the same greedy answer of NUM_TOKENS tokens over and over,
- the *tiny chat*, which asks for one token every 0.5 s on a new connection,
- the *probe*, which asks for ``/health`` every 0.25 s on a new connection.

For a KIND of server that makes no text, ``embed`` or ``score``, the neighbour asks for the same
vectors or scores over and over, and so does the tiny chat.

They share no process with the attack, so its work does not delay their clocks. Commands come as
lines on stdin, and every command is answered with one line of JSON:

- ``report``: what was seen since the last report. Waits for the tiny chat and the probe in flight,
  and for at least one of each.
- ``clear``: forget what was seen so far.
- ``pause``: end the stream, let the others finish, and stay quiet until ``resume``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from compat_tests.support import sse
from compat_tests.support.http import Connection, ConnectionEnded, strict_json

CHAT_INTERVAL = 0.5
HEALTH_INTERVAL = 0.25
TIMEOUT = 60.0
"""Seconds after which a client gives up waiting for a byte."""

NEIGHBOUR, CHATTER, PROBE = "127.0.0.1", "127.0.0.3", "127.0.0.4"
"""The addresses that the bystanders come from: they are clients of their own."""

FAULTS = (OSError, ConnectionEnded, AssertionError, ValueError)
"""What a client sees when its answer is cut or malformed."""

Record = dict[str, Any]

TINY: dict[str, tuple[str, Record]] = {
    "text": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "temperature": 0},
    ),
    "embed": ("/v1/embeddings", {"input": "a fox"}),
    "score": ("/v1/score", {"text_1": "who?", "text_2": ["a fox", "a dog"]}),
}
"""The tiny chat's path and body, by kind of server."""


class Switch:
    """Pauses the clients. ``quiet`` returns once all of them wait."""

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients
        self._num_waiting = 0
        self._changed = threading.Condition()
        self.is_paused = False

    def checkpoint(self) -> None:
        """Called by a client between two requests: wait while there is a pause."""
        with self._changed:
            if not self.is_paused:
                return
            self._num_waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.is_paused)
            self._num_waiting -= 1

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until a pause begins."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_paused, timeout=max(seconds, 0.0))

    def pause(self) -> None:
        with self._changed:
            self.is_paused = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._num_waiting == self._num_clients)

    def resume(self) -> None:
        with self._changed:
            self.is_paused = False
            self._changed.notify_all()


class Neighbour:
    """Streams one answer again and again and compares every piece with the first whole one."""

    def __init__(self, connect: Callable[[], Connection], num_tokens: int, switch: Switch) -> None:
        self._connect = connect
        self._switch = switch
        self._body = {
            "prompt": "Once upon a time there was a little fox who lived in the forest.",
            "max_tokens": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        self._lock = threading.Lock()
        self._last_event: float | None = None
        self.expected: str | None = None
        self._clear()

    def run(self) -> None:
        while True:
            self._switch.checkpoint()
            try:
                self._stream()
            except FAULTS as error:
                with self._lock:
                    self._last_event = None
                    self._cuts.append(f"{type(error).__name__}: {error}"[:300])
                self._switch.sleep(0.1)

    def report(self) -> Record:
        """What was seen since the last report; a silence that lasts still is counted."""
        with self._lock:
            now = time.monotonic()
            if self._last_event is not None:
                self._longest = max(self._longest, now - self._last_event)
            found = {
                "gap": self._longest,
                "start": self._longest_start,
                "num_events": self._num_events,
                "num_changed": self._num_changed,
                "num_refused": self._num_refused,
                "cuts": self._cuts,
            }
            self._clear()
            return found

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._longest = self._longest_start = 0.0
        self._num_events = self._num_changed = self._num_refused = 0
        self._cuts: list[str] = []

    def _stream(self) -> None:
        started = time.monotonic()
        with self._connect() as connection:
            reply = connection.request("POST", "/v1/completions", self._body)
            if reply.status in {429, 503}:
                with self._lock:
                    self._num_refused += 1
                self._switch.sleep(0.1)
                return
            assert reply.status == 200, f"status {reply.status}: {reply.text[:200]}"
            text = ""
            for event in sse.iter_events(reply.pieces()):
                if event.startswith(b":") or event == sse.DONE:
                    continue
                chunk = strict_json(event[6:])
                assert "error" not in chunk, chunk["error"]
                piece = "".join(choice["text"] for choice in chunk["choices"])
                self._see(piece, len(text), started)
                text += piece
                if self._switch.is_paused:
                    break
            else:
                if self.expected is None:
                    self.expected = text
                elif text != self.expected:
                    with self._lock:
                        self._num_changed += 1
        with self._lock:
            self._last_event = None

    def _see(self, piece: str, offset: int, started: float) -> None:
        with self._lock:
            now = time.monotonic()
            if self._last_event is None:
                self._longest_start = max(self._longest_start, now - started)
            else:
                self._longest = max(self._longest, now - self._last_event)
            self._last_event = now
            self._num_events += 1
            expected = self.expected
            if expected is not None and expected[offset : offset + len(piece)] != piece:
                self._num_changed += 1


TOLERANCE = 1e-3
"""Other rows of a batch change the last bits of a vector."""


class Asker(Neighbour):
    """A neighbour that asks for vectors or scores; every answer is an event."""

    def __init__(self, kind: str, connect: Callable[[], Connection], switch: Switch) -> None:
        super().__init__(connect, 0, switch)
        self._path, self._body = TINY[kind]
        self._numbers: list[float] | None = None

    def _stream(self) -> None:
        while not self._switch.is_paused:
            started = time.monotonic()
            with self._connect() as connection:
                reply = connection.request("POST", self._path, self._body)
                if reply.status in {429, 503}:
                    with self._lock:
                        self._num_refused += 1
                    self._switch.sleep(0.1)
                    continue
                assert reply.status == 200, f"status {reply.status}: {reply.text[:200]}"
                numbers = numbers_in(strict_json(reply.body)["data"])
            if self._numbers is None:
                self._numbers, self.expected = numbers, "numbers"
            are_same = len(numbers) == len(self._numbers) and all(
                abs(one - other) < TOLERANCE
                for one, other in zip(numbers, self._numbers, strict=True)
            )
            self._see("numbers" if are_same else "others", 0, started)
        with self._lock:
            self._last_event = None


def numbers_in(data: list[Record]) -> list[float]:
    """The vectors or scores of an answer, one after the other."""
    found: list[float] = []
    for item in data:
        found += item["embedding"] if "embedding" in item else [item["score"]]
    return found


class Knocker:
    """Sends one short request at every interval and keeps its status and its duration."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        interval: float,
        request: tuple[str, str, Any],
        switch: Switch,
    ) -> None:
        self._connect = connect
        self._interval = interval
        self._request = request
        self._switch = switch
        self._changed = threading.Condition()
        self._is_busy = False
        self._answers: list[tuple[int, float]] = []
        self._cuts: list[str] = []

    def run(self) -> None:
        while True:
            self._switch.checkpoint()
            with self._changed:
                self._is_busy = True
            started = time.monotonic()
            status, cut = 0, None
            try:
                with self._connect() as connection:
                    reply = connection.request(*self._request)
                    assert reply.body is not None
                    status = reply.status
            except FAULTS as error:
                cut = f"{type(error).__name__}: {error}"[:300]
            seconds = time.monotonic() - started
            with self._changed:
                self._is_busy = False
                if cut is None:
                    self._answers.append((status, seconds))
                else:
                    self._cuts.append(cut)
                self._changed.notify_all()
            self._switch.sleep(self._interval - seconds)

    def report(self) -> Record:
        """What was seen since the last report, the request in flight and at least one included."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy and (self._answers or self._cuts))
            found = {"answers": self._answers, "cuts": self._cuts}
            self._answers, self._cuts = [], []
            return found

    def clear(self) -> None:
        """Forget what was seen so far, at once."""
        with self._changed:
            self._answers, self._cuts = [], []


def main() -> None:
    host, port, num_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def connect(source: str) -> Connection:
        return Connection(host, port, timeout=TIMEOUT, source=source)

    switch = Switch(num_clients=3)
    kind = sys.argv[4] if len(sys.argv) > 4 else "text"
    if kind == "text":
        neighbour = Neighbour(partial(connect, NEIGHBOUR), num_tokens, switch)
    else:
        neighbour = Asker(kind, partial(connect, NEIGHBOUR), switch)
    chats, healths = ("POST", *TINY[kind]), ("GET", "/health", None)
    chat = Knocker(partial(connect, CHATTER), CHAT_INTERVAL, chats, switch)
    health = Knocker(partial(connect, PROBE), HEALTH_INTERVAL, healths, switch)
    clients = {"neighbour": neighbour, "chat": chat, "health": health}
    for client in clients.values():
        threading.Thread(target=client.run, daemon=True).start()
    for line in sys.stdin:
        answer: Record = {}
        match line.strip():
            case "report":
                answer = {name: client.report() for name, client in clients.items()}
                answer["has_reference"] = neighbour.expected is not None
            case "clear":
                for client in clients.values():
                    client.clear()
            case "pause":
                switch.pause()
            case "resume":
                switch.resume()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
