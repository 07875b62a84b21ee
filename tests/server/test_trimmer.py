"""Memory is returned after large requests, once for several, and never after small ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server.trimmer import DELAY, ENOUGH, Trimmer


class ScriptedLoop:
    """An event loop that keeps what it is asked to do."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.jobs: list[Callable[[], None]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.timers.append((delay, callback))
        return object()

    def run_in_executor(self, _executor: object, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


def trim() -> None: ...


@pytest.fixture
def loop():
    return ScriptedLoop()


@pytest.fixture
def trimmer(loop):
    return Trimmer(loop, trim)


def test_small_requests_return_nothing_until_they_add_up(loop, trimmer):
    for _ in range(ENOUGH // 1024 - 1):
        trimmer.ended(1024)
    assert not loop.timers
    trimmer.ended(1024)
    assert [delay for delay, _ in loop.timers] == [DELAY]


def test_requests_that_end_together_are_one_return(loop, trimmer):
    for _ in range(10):
        trimmer.ended(ENOUGH)
    assert len(loop.timers) == 1
    loop.fire()
    assert loop.jobs == [trim]
    trimmer.ended(1)
    assert not loop.timers, "it counts from zero again"
    trimmer.ended(ENOUGH)
    assert len(loop.timers) == 1


def test_glibc_is_found_or_nothing_is_done(loop):
    trimmer = Trimmer(loop)
    trimmer.ended(ENOUGH)
    loop.fire()
    for job in loop.jobs:
        job()
