"""The stall detector, on a loop whose clock the test turns; and inside the application."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server.observe.stalls import BEAT, LIMIT, StallWatch
from tests.support.stalls import check_a_stall_is_counted

pytestmark = pytest.mark.anyio


class ScriptedLoop:
    """An event loop that only has timers; the test moves its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 7.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        self.timers.append((when, callback))
        return object()

    def advance(self, seconds: float, *, cpu: float = 0.0) -> None:
        """Let time pass while no callback runs, then run every timer that is due."""
        self.now += seconds
        self.cpu += cpu
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, callback in due:
            callback()


@pytest.fixture
def loop():
    return ScriptedLoop()


@pytest.fixture
def watch(loop):
    return StallWatch(loop, cpu_time=lambda: loop.cpu)


def test_an_idle_server_has_no_timer(loop, watch):
    assert not loop.timers
    watch.enter()
    assert len(loop.timers) == 1
    watch.enter()
    assert len(loop.timers) == 1
    watch.leave()
    loop.advance(BEAT)
    assert len(loop.timers) == 1, "one request is still open"
    watch.leave()
    loop.advance(BEAT)
    assert not loop.timers
    watch.enter()
    assert len(loop.timers) == 1, "it starts again"


def test_time_without_requests_is_no_stall(loop, watch):
    watch.enter()
    watch.leave()
    loop.advance(BEAT)
    loop.advance(1000)
    watch.enter()
    loop.advance(BEAT)
    assert watch.stats.num_stalls == 0


def test_a_loop_that_is_on_time_has_no_stalls(loop, watch):
    watch.enter()
    for _ in range(100):
        loop.advance(BEAT + LIMIT * 0.9, cpu=BEAT)
    assert watch.stats.num_stalls == 0
    assert watch.stats.longest_stall_ms == 0


def test_a_block_is_counted_and_its_length_kept(loop, watch):
    watch.enter()
    loop.advance(BEAT + 0.3, cpu=0.001)
    loop.advance(BEAT + 0.08, cpu=0.001)
    assert watch.stats.num_stalls == 2
    assert watch.stats.longest_stall_ms == 300
    assert watch.stats.num_busy_stalls == 0, "the thread did not compute"


def test_a_busy_block_is_told_apart(loop, watch):
    watch.enter()
    loop.advance(BEAT + 0.3, cpu=0.2)
    loop.advance(BEAT + 0.1, cpu=0.3)
    assert watch.stats.num_stalls == 2
    assert watch.stats.num_busy_stalls == 2
    assert watch.stats.longest_busy_stall_ms == 200
    assert watch.stats.longest_stall_ms == 300


async def test_a_handler_that_blocks_the_loop_shows_in_stats(start_app, engine):
    await check_a_stall_is_counted(await start_app(engine))
