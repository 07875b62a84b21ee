"""Streams cut at random phases: everything they held is free again at once."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter

from compat_tests.support import sse
from compat_tests.support.api import CHAT, COMPLETIONS, in_threads
from compat_tests.support.http import Clock, Connection, ConnectionEnded
from compat_tests.support.waiting import pause
from tests.bystander.arena import Arena, abandon
from tests.bystander.stand import Stand

PHASES = ("upload", "worker", "waiting", "prefill", "decode", "finish", "keep-alive")

BATCH = 50
"""Streams that are open at the same time."""

BACK_SECONDS = 0.25


class Cutter:
    """Opens a stream and leaves it at a phase, with a close or with a reset."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._lock = threading.Lock()
        self.reached: Counter[str] = Counter()

    def cut(self, phase: str, dice: random.Random) -> None:
        with self._arena.connect() as connection, contextlib.suppress(OSError, ConnectionEnded):
            getattr(self, f"_{phase.replace('-', '_')}")(connection, dice)
            with self._lock:
                self.reached[phase] += 1
            if dice.random() < 0.5:
                abandon(connection)

    def _upload(self, connection: Connection, dice: random.Random) -> None:
        data = self._arena.whole(CHAT, self._arena.chat("x" * 5000))
        connection.send_bytes(data[: dice.randrange(1, len(data))])
        pause(dice.random() * 0.02)

    def _worker(self, connection: Connection, dice: random.Random) -> None:
        body = self._arena.chat("lorem ipsum " * 4000, max_tokens=1500, stream=True)
        connection.send("POST", CHAT, body)
        pause(dice.random() * 0.02)

    def _waiting(self, connection: Connection, dice: random.Random) -> None:
        body = self._arena.chat(n=8, max_tokens=1500, ignore_eos=True, stream=True)
        connection.send("POST", CHAT, body)
        pause(dice.random() * 0.1)

    def _prefill(self, connection: Connection, dice: random.Random) -> None:
        prompt = [70 + dice.randrange(150) for _ in range(1900)]
        body = self._arena.completion(prompt, max_tokens=100, stream=True)
        connection.send("POST", COMPLETIONS, body)
        pause(dice.random() * 0.1)

    def _decode(self, connection: Connection, dice: random.Random) -> None:
        body = self._arena.chat(max_tokens=1500, ignore_eos=True, stream=True)
        events = sse.iter_events(connection.request("POST", CHAT, body).pieces())
        for _ in range(dice.randrange(1, 20)):
            next(events)

    def _finish(self, connection: Connection, dice: random.Random) -> None:
        body = self._arena.chat(max_tokens=dice.randrange(1, 4), ignore_eos=True, stream=True)
        for piece in connection.request("POST", CHAT, body).pieces():
            if b'"finish_reason":"length"' in piece:
                return

    def _keep_alive(self, connection: Connection, dice: random.Random) -> None:
        body = self._arena.chat(max_tokens=dice.randrange(1, 4), stream=True)
        assert connection.request("POST", CHAT, body).body
        connection.send("POST", CHAT, self._arena.chat(max_tokens=1500, ignore_eos=True))


def cut_many(stand: Stand, number: int, *, slack: float) -> tuple[Counter[str], float]:
    """Cut so many streams in batches; how many of each phase, and the slowest return to baseline.

    ``slack`` widens the bar.
    """
    dice = random.Random(13)
    cutter = Cutter(Arena(stand.server, 1))
    slowest = 0.0

    def cut(job: tuple[str, int]) -> None:
        cutter.cut(job[0], random.Random(job[1]))

    for start in range(0, number, BATCH):
        phases = (PHASES[i % len(PHASES)] for i in range(start, start + BATCH))
        in_threads(cut, [(phase, dice.randrange(2**32)) for phase in phases], width=BATCH)
        clock = Clock()
        left = stand.wait_back(BACK_SECONDS * slack)
        assert not left, f"batch at {start}: {left}"
        slowest = max(slowest, clock.seconds)
    assert cutter.reached.total() == number, f"not all got as far as their phase: {cutter.reached}"
    return cutter.reached, slowest
