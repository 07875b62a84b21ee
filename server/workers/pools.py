"""FairSlots: a limit that tenants share fairly. Pacing and worker pools are made of it.

``checkpoint`` ends a worker's job between two of its stages if nobody waits for its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from core.contract.errors import RequestCancelled
from core.state.fair_queue import Entry, FairQueue, fair_entries

P = ParamSpec("P")
T = TypeVar("T")

BEGINS = 4  # requests between two other callbacks of the event loop: a few milliseconds of work
LARGE_BODY = 64 * 1024  # bytes above which a request is tokenized in the pool of large ones
NUM_COMPILERS = 2  # grammars that are compiled at a time

is_abandoned: ContextVar[Callable[[], bool]] = ContextVar("is_abandoned", default=lambda: False)
"""Set by a WorkerPool in the worker thread."""


def is_cancelled() -> bool:
    """Return true if the client of the running job has left. False outside of a WorkerPool."""
    return is_abandoned.get()()


def checkpoint() -> None:
    """Raise RequestCancelled if the client of the running job has left."""
    if is_cancelled():
        raise RequestCancelled


class FairSlots:
    """A number of slots. Waiting requests get them fairly by tenant. Event loop only."""

    def __init__(self, limit: int) -> None:
        self.num_running = 0  # callers that have a slot
        self._limit = limit
        self._queue: FairQueue[Entry[asyncio.Future[None]]] = fair_entries()

    @property
    def num_waiting(self) -> int:
        """Callers that wait for a slot."""
        return len(self._queue)

    async def take(self, tenant: str, cost: float = 1.0, priority: int = 0) -> None:
        """Wait for a slot and take it."""
        if self.num_running < self._limit:
            self.num_running += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = Entry(waiter, tenant, cost, priority)
        self._queue.add(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back()  # the slot was handed over in the same loop iteration
            else:
                self._queue.discard(entry)
            raise

    def give_back(self) -> None:
        """Hand the slot to the next that waits."""
        while self._queue:
            waiter = self._queue.pop().value
            if not waiter.done():  # else its caller is about to leave the queue
                waiter.set_result(None)
                return
        self.num_running -= 1


class Pacing:
    """Requests that arrive together begin a few at a time, fairly by tenant. Event loop only.

    In between, the loop accepts and refuses requests and sends what the engine has delivered.
    """

    def __init__(self) -> None:
        self._slots = FairSlots(BEGINS)

    async def begin(self, tenant: str) -> None:
        """Return when the request may begin: at once unless many have begun just now."""
        await self._slots.take(tenant)
        asyncio.get_running_loop().call_soon(self._slots.give_back)


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose work it is, how much, and its place among the tenant's own: the lowest is first.

    ``on_start`` is called on the event loop when a worker takes it.
    """

    tenant: str
    num_bytes: int
    priority: int = 0
    on_start: Callable[[], None] = field(default=lambda: None, compare=False)


class WorkerPool(FairSlots):
    """Runs pure functions in its threads. Event loop only.

    A job whose caller is cancelled never begins if it still waits. If it runs, its next
    ``checkpoint`` ends it, and its result is dropped; until then it keeps its worker.
    """

    def __init__(self, name: str, num_workers: int) -> None:
        super().__init__(num_workers)
        self.num_abandoned = 0  # jobs that still run although nobody waits for them
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(num_workers, thread_name_prefix=f"roseinfer-{name}")

    async def run(
        self, turn: Turn, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function in a worker. ``turn`` is of the tenant's request."""
        await self.take(turn.tenant, turn.num_bytes, turn.priority)
        turn.on_start()
        abandoned = threading.Event()

        def call() -> T:
            is_abandoned.set(abandoned.is_set)
            return function(*args, **kwargs)

        done = self._executor.submit(call)
        done.add_done_callback(lambda _done: self._post_end(abandoned))
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            if not done.done():
                abandoned.set()
                self.num_abandoned += 1
            raise

    def close(self) -> None:
        """Start no more jobs. Does not wait for running ones."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _post_end(self, abandoned: threading.Event) -> None:
        """Called on the worker's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end, abandoned)

    def _end(self, abandoned: threading.Event) -> None:
        self.num_abandoned -= abandoned.is_set()
        self.give_back()


class WorkerPools:
    """A pool for each kind of work, so that small requests pass large ones. Event loop only."""

    def __init__(self, num_workers: int) -> None:
        """``num_workers`` threads serve small requests, half as many large ones."""
        self.small = WorkerPool("small", num_workers)
        self.large = WorkerPool("large", max(num_workers // 2, 1))
        self.tokens = WorkerPool("tokens", 1)
        self.grammars = WorkerPool("grammars", NUM_COMPILERS)
        self.all = (self.small, self.large, self.tokens, self.grammars)

    def of_size(self, num_bytes: int) -> WorkerPool:
        """The pool that translates a request with a body of this size."""
        return self.large if num_bytes > LARGE_BODY else self.small

    def close(self) -> None:
        for pool in self.all:
            pool.close()
