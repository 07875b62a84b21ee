"""Memory is returned when the process has grown, once for several requests."""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import Future

import anyio
import pytest

from server.generation.trimmer import DELAY, ENOUGH, Trimmer
from tests.support.asgi import Exchange, ask
from tests.support.engines import until

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "x"}]}


class ScriptedLoop:
    """An event loop that keeps its timers; what it hands to a worker it runs at once."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.timers.append((delay, callback))
        return object()

    def run_in_executor(self, _executor: object, job: Callable[[], int]) -> Future[int]:
        done: Future[int] = Future()
        done.set_result(job())
        return done

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


class Heap:
    """A process whose freed memory stays until it is trimmed."""

    def __init__(self) -> None:
        self.used = 500 * 2**20
        self.freed = 0
        self.num_trims = 0

    def measure(self) -> int:
        return self.used + self.freed

    def trim(self) -> None:
        self.num_trims += 1
        self.freed = 0


def run_request(trimmer: Trimmer) -> None:
    trimmer.request_started()
    trimmer.request_ended()


@pytest.fixture
def loop():
    return ScriptedLoop()


@pytest.fixture
def heap():
    return Heap()


@pytest.fixture
def trimmer(loop, heap):
    trimmer = Trimmer(loop, trim=heap.trim, measure=heap.measure)
    run_request(trimmer)
    loop.fire()
    assert heap.num_trims == 1, "after the first request: what loading has left"
    return trimmer


def test_small_requests_return_nothing(loop, heap, trimmer):
    for _ in range(100):
        heap.freed = ENOUGH - 1
        run_request(trimmer)
        loop.fire()
    assert heap.num_trims == 1


def test_requests_that_end_together_are_one_look(loop, heap, trimmer):
    heap.freed = ENOUGH
    for _ in range(10):
        run_request(trimmer)
    assert [delay for delay, _ in loop.timers] == [DELAY]
    loop.fire()
    assert heap.num_trims == 2
    assert heap.freed == 0
    assert not loop.timers, "an idle server looks no more"


def test_memory_in_use_is_the_new_measure(loop, heap, trimmer):
    heap.used += ENOUGH
    for _ in range(3):
        run_request(trimmer)
        loop.fire()
    assert heap.num_trims == 2


def test_what_another_request_held_at_a_trim_is_returned_once_it_has_ended(loop, heap, trimmer):
    held = ENOUGH
    trimmer.request_started()
    heap.used += held
    run_request(trimmer)
    loop.fire()
    assert heap.num_trims == 2, "beside the one that goes on"
    heap.used -= held
    heap.freed += held
    trimmer.request_ended()
    assert bool(loop.timers) == (platform.libc_ver()[0] == "glibc")
    loop.fire()
    assert heap.freed == 0
    for _ in range(3):
        heap.freed = ENOUGH - 1
        run_request(trimmer)
        loop.fire()
    assert heap.num_trims == 3, "only once"


def test_the_allocator_of_this_machine_is_trimmed_or_left_alone(loop):
    trimmer = Trimmer(loop)
    run_request(trimmer)
    loop.fire()


@pytest.mark.anyio
async def test_every_request_is_told_when_it_starts_and_when_it_has_ended(start_app, monkeypatch):
    told = []
    for name in ("request_started", "request_ended"):
        monkeypatch.setattr(Trimmer, name, lambda _trimmer, name=name: told.append(name))
    app = await start_app()
    both = ["request_started", "request_ended"]
    for body in (BODY, BODY | {"stream": True}, {"messages": []}, b"{"):
        await ask(app, "POST", CHAT, body)
        assert told == both
        told.clear()
    leaving = Exchange("POST", CHAT, chunks=[b"{"], is_complete=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leaving.run, app)
        await until(lambda: told)
        assert told == both[:1]
        leaving.disconnect()
        await leaving.done()
    assert told == both
