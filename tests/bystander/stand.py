"""Stand: one server, its bystanders, and the bars that hold while it is attacked."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from compat_tests.support.http import Clock
from compat_tests.support.process import ROOT, ServerProcess
from compat_tests.support.waiting import eventually, pause
from tests.bystander.arena import COMPLETIONS, Arena, Attack
from tests.bystander.footprint import MIB, Footprint, memory
from tests.bystander.kinds import holdings, memory_by_kind

NORMAL_GAP = 0.05
"""Seconds: a calm machine's longest gap is less. Where it is more, the bars are widened."""

CALM_LOOKS = 3
"""Times that a machine which is not calm is looked at, at most."""

BACK_SECONDS = 2.0
"""Seconds until everything is back to baseline."""

FLOOD_GAP, FLOOD_CHAT, FLOOD_HEALTH, FLOOD_REFUSAL, FLOOD_BACK = 1.0, 3.0, 1.0, 5.0, 10.0
"""Seconds in a flood: the neighbour's longest gap, the slowest chat, ``/health`` and 429 or 503,
and until everything is back to baseline."""

SHORTEST = 0.3
"""Seconds that an attack is watched at least; the report waits for a tiny chat besides."""

CLOSE = 3.0
"""A bar of time that is broken by a smaller factor may be the machine's doing."""

THREAD_SLACK = 16
"""Worker threads that the server may have started."""

BLOCK_SIZE, FILLING, FEW = 16, 1600, 8
"""Tokens of a KV cache block; tokens of a prompt, and prompts at a time, to fill the cache."""

KEPT_BYTES = 128 * MIB
"""Memory that an attack may leave behind: fragments of the heap, and bounded caches."""

PEAK_BYTES = 1536 * MIB
"""Memory that an attack may take while it runs."""


@dataclass(frozen=True)
class Seen:
    """What the bystanders saw in a time. Seconds."""

    gap: float
    chats: tuple[tuple[int, float], ...]
    healths: tuple[tuple[int, float], ...]
    num_events: int
    num_changed: int
    num_refused: int
    cuts: tuple[str, ...]

    @classmethod
    def of(cls, report: dict[str, Any]) -> Seen:
        neighbour, chat, health = report["neighbour"], report["chat"], report["health"]
        return cls(
            gap=neighbour["gap"],
            chats=tuple((status, seconds) for status, seconds in chat["answers"]),
            healths=tuple((status, seconds) for status, seconds in health["answers"]),
            num_events=neighbour["num_events"],
            num_changed=neighbour["num_changed"],
            num_refused=neighbour["num_refused"],
            cuts=(*neighbour["cuts"], *chat["cuts"], *health["cuts"]),
        )

    @property
    def chat(self) -> float:
        """The slowest tiny chat that was answered 200."""
        return max((seconds for status, seconds in self.chats if status == 200), default=0.0)

    @property
    def health(self) -> float:
        return max((seconds for _, seconds in self.healths), default=0.0)


class Witness:
    """The process of the bystanders."""

    def __init__(self, server: ServerProcess, num_tokens: int, kind: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.bystander.witness"),
                *(server.host, str(server.port), str(num_tokens), kind),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the bystanders' process has ended"
        return dict(json.loads(answer))

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Outcome:
    """One attack: what was done, what the bystanders saw, and which bars it broke."""

    name: str
    seconds: float
    num_sent: int
    statuses: Counter[int]
    calm: Seen
    seen: Seen
    num_busy_stalls: int
    longest_busy_stall_ms: int
    back_seconds: float
    kept: int
    peak: int
    slowest_refusal: float
    broken: list[str] = field(default_factory=list)
    is_close: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.row()}\n" + "\n".join(self.broken)

    def row(self) -> dict[str, str]:
        """A row of the table in docs/reliability.md."""
        statuses = ", ".join(
            f"{number} x {status or 'cut'}" for status, number in sorted(self.statuses.items())
        )
        return {
            "attack": self.name,
            "sent": str(self.num_sent),
            "answers": statuses,
            "gap, calm": f"{self.calm.gap * 1000:.0f} ms",
            "gap": f"{self.seen.gap * 1000:.0f} ms",
            "tiny chat, calm": f"{self.calm.chat * 1000:.0f} ms",
            "tiny chat": f"{self.seen.chat * 1000:.0f} ms",
            "/health": f"{self.seen.health * 1000:.0f} ms",
            "longest busy stall": f"{self.longest_busy_stall_ms} ms",
            "memory, peak and kept": f"{self.peak / MIB:.0f}, {self.kept / MIB:.0f} MiB",
            "lost": "; ".join(self.broken) or "nothing",
        }


class Beside:
    """What the bystanders saw beside something; set once it is over."""

    last: Seen


class Stand:
    """Runs attacks beside the bystanders of one server."""

    def __init__(
        self,
        server: ServerProcess,
        *,
        size: float,
        num_tokens: int,
        kind: str = "text",
        holdings_at: str = "",
    ) -> None:
        """``num_tokens`` is the length of the neighbour's answer. ``kind`` is the server's.

        ``holdings_at`` is the socket of a measured server.
        """
        self.server = server
        self.size = size
        self._holdings_at = holdings_at
        self._witness = Witness(server, num_tokens, kind)
        self._calm: Seen | None = None
        try:
            self._wait_for_reference()
            self._witness.ask("pause")
            eventually(self._is_idle, what="an idle server")
            self._first = Footprint.of(server)
            self._witness.ask("resume")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._witness.close()

    def fill_cache(self) -> None:
        """Write to every KV cache block once.

        The system allocates the cache's memory as blocks are first written. It belongs to the
        server, not to the attack that happens to be the first to use a block.
        """
        num_prompts = self.server.stats()["num_blocks"] * BLOCK_SIZE // FILLING + 1
        with self.quiet():
            for first in range(0, num_prompts, FEW):
                prompts = [
                    [70 + number, *(70 + place * (number + 1) % 150 for place in range(FILLING))]
                    for number in range(first, first + FEW)
                ]
                with self.server.connect(timeout=120) as connection:
                    body = {"prompt": prompts, "max_tokens": 1}
                    assert connection.request("POST", COMPLETIONS, body).status == 200

    def watch(self, seconds: float) -> Seen:
        """What the bystanders see in the next seconds."""
        self._witness.ask("clear")
        pause(seconds)
        return Seen.of(self._witness.ask("report"))

    @contextmanager
    def beside(self) -> Iterator[Beside]:
        """Watch the bystanders while the body runs; afterwards ``last`` is what they saw."""
        beside = Beside()
        self._witness.ask("clear")
        yield beside
        beside.last = Seen.of(self._witness.ask("report"))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No bystander sends anything while the body runs."""
        self._witness.ask("pause")
        eventually(self._is_idle, what="an idle server")
        try:
            yield
        finally:
            self._witness.ask("resume")

    @contextmanager
    def awake(self) -> Iterator[None]:
        """The bystanders of a quiet stand are back while the body runs."""
        self._witness.ask("resume")
        try:
            yield
        finally:
            self._witness.ask("pause")

    def footprint(self) -> Footprint:
        return Footprint.of(self.server)

    def kinds(self) -> dict[str, int]:
        """The kinds of memory of a measured server, and what it holds."""
        return memory_by_kind(self.server.pid) | holdings(self._holdings_at)

    def run(self, attack: Attack, *, calm_seconds: float, num_tries: int = 1) -> Outcome:
        """Run an attack, and again while only bars of time were broken, by less than CLOSE."""
        for number in range(num_tries):
            if self._calm is None or number or self.size == 1:
                self._calm = self._watch_calm(calm_seconds)
            outcome = self._run_once(attack, self._calm, number)
            if not outcome.is_close:
                break
        return outcome

    def slack(self, calm: Seen | None = None) -> float:
        """1 on a calm machine; more where the machine alone makes the bystanders wait."""
        calm = calm or self._calm
        if calm is None:
            calm = self._calm = self._watch_calm(1.2)
        return max(1.0, calm.gap / NORMAL_GAP)

    def _watch_calm(self, seconds: float) -> Seen:
        """The calmest of some looks: a machine that stops for a moment must not widen all bars."""
        best = self.watch(seconds)
        for _ in range(CALM_LOOKS - 1):
            if best.gap <= NORMAL_GAP:
                break
            best = min(best, self.watch(seconds), key=lambda seen: seen.gap)
        return best

    def _is_idle(self) -> bool:
        stats = self.server.stats()
        return stats["num_running"] == stats["num_waiting"] == 0

    def _wait_for_reference(self) -> None:
        clock = Clock()
        while not self._witness.ask("report")["has_reference"]:
            assert clock.seconds < 60, "the neighbour has no answer"
            pause(0.1)

    def _run_once(self, attack: Attack, calm: Seen, number: int) -> Outcome:
        arena = Arena(self.server, self.size, number)
        before = self.server.stats()["event_loop"]
        memory_before = memory(self.server.pid)
        self._witness.ask("clear")
        clock = Clock()
        with PeakMemory(self.server.pid) as peak:
            arena.together(attack.run, [arena], width=1)
            pause(max(0.0, SHORTEST - clock.seconds))
            seen = Seen.of(self._witness.ask("report"))
        seconds = clock.seconds
        after = self.server.stats()["event_loop"]
        self._witness.ask("pause")
        clock = Clock()
        patience = (FLOOD_BACK if attack.is_flood else BACK_SECONDS) * self.slack(calm)
        left = self.wait_back(patience)
        back_seconds = clock.seconds
        kept = self.wait_kept(memory_before, patience - clock.seconds)
        outcome = Outcome(
            name=attack.name,
            seconds=seconds,
            num_sent=arena.num_sent,
            statuses=arena.statuses,
            calm=calm,
            seen=seen,
            num_busy_stalls=after["num_busy_stalls"] - before["num_busy_stalls"],
            longest_busy_stall_ms=(
                after["longest_busy_stall_ms"]
                if after["num_busy_stalls"] > before["num_busy_stalls"]
                else 0
            ),
            back_seconds=back_seconds,
            kept=kept,
            peak=max(0, peak.bytes - memory_before),
            slowest_refusal=arena.slowest_refusal,
            broken=[*arena.faults[:3], *left],
        )
        late, others = self._late(outcome, attack), self._others(outcome, attack)
        outcome.is_close = bool(late) and all(v < CLOSE * bar for _, v, bar in late)
        outcome.is_close &= not outcome.broken and not others
        outcome.broken += [f"{what} {v:.2f} s, bar {bar:.2f} s" for what, v, bar in late] + others
        self._witness.ask("resume")
        return outcome

    def wait_back(self, seconds: float) -> list[str]:
        """Wait for the baseline; what has not come back in time."""
        clock = Clock()
        while left := self._left():
            if clock.seconds > seconds:
                return left
            pause(0.02)
        return []

    def wait_kept(self, before: int, seconds: float) -> int:
        """Wait until memory is back; how many bytes more than ``before`` the server keeps.

        It returns freed memory a moment after its last request has ended.
        """
        clock = Clock()
        while memory(self.server.pid) - before > KEPT_BYTES / 2 and clock.seconds < seconds:
            pause(0.05)
        return max(0, memory(self.server.pid) - before)

    def _left(self) -> list[str]:
        first, now = self._first, Footprint.of(self.server)
        left = [
            f"{name} is {now.gauges[name]}, was {value}"
            for name, value in first.gauges.items()
            if now.gauges[name] != value
        ]
        if now.num_descriptors > first.num_descriptors + now.num_children * 4 + 4:
            left.append(f"{now.num_descriptors} descriptors, were {first.num_descriptors}")
        if now.num_threads > first.num_threads + THREAD_SLACK:
            left.append(f"{now.num_threads} threads, were {first.num_threads}")
        return left

    def _late(self, outcome: Outcome, attack: Attack) -> list[tuple[str, float, float]]:
        """The broken bars of time: what, its seconds, and the bar."""
        calm, seen, slack = outcome.calm, outcome.seen, self.slack(outcome.calm)
        if attack.is_flood:
            bars = [
                ("gap", seen.gap, FLOOD_GAP * slack),
                ("tiny chat", seen.chat, FLOOD_CHAT * slack),
                ("/health", seen.health, FLOOD_HEALTH * slack),
                ("slowest 429 or 503", outcome.slowest_refusal, FLOOD_REFUSAL * slack),
            ]
            return [bar for bar in bars if bar[1] > bar[2]]
        bars = [
            ("gap", seen.gap, max(3 * calm.gap, calm.gap + 0.25 * slack)),
            ("tiny chat", seen.chat, max(5 * calm.chat, calm.chat + 1.0 * slack)),
            ("/health", seen.health, 0.25 * slack),
        ]
        refused = [seconds for status, seconds in seen.chats if status == 429]
        if attack.may_refuse and refused:
            bars.append(("median 429", statistics.median(refused), 0.1 * slack))
        return [bar for bar in bars if bar[1] > bar[2]]

    def _others(self, outcome: Outcome, attack: Attack) -> list[str]:
        """What else must not happen."""
        seen = outcome.seen
        broken = list(dict.fromkeys(seen.cuts))[:3]
        if outcome.kept > KEPT_BYTES:
            broken.append(f"{outcome.kept / MIB:.0f} MiB kept")
        if outcome.peak > PEAK_BYTES:
            broken.append(f"{outcome.peak / MIB:.0f} MiB at its peak")
        if seen.num_changed:
            broken.append("the neighbour's text changed")
        if any(status != 200 for status, _ in seen.healths):
            broken.append("/health was not 200")
        allowed = {200} | ({429} if attack.may_refuse else set())
        allowed |= {503} if attack.is_flood and attack.may_refuse else set()
        odd = {status for status, _ in seen.chats} - allowed
        if odd or (seen.num_refused and not attack.may_refuse):
            broken.append(f"a bystander was refused: {sorted(odd)}")
        return broken


class PeakMemory:
    """Samples the memory of a process and its children while it is entered."""

    def __init__(self, pid: int, interval: float = 0.05) -> None:
        self._pid = pid
        self._interval = interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.bytes = max(self.bytes, memory(self._pid))
            if self._end.wait(self._interval):
                return
