"""WorkerPool: threads for one kind of work, shared fairly. WorkerPools: one for each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from core.fair_queue import Entry, FairQueue, fair_entries
from server.admission.checkpoint import is_abandoned

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BODY = 64 * 1024
"""Bytes above which a request is tokenized in the pool of large ones."""

NUM_COMPILERS = 2
"""Grammars that are compiled at a time."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose work it is, how much, and its place among the tenant's own: the lowest is first.

    ``on_start`` is called on the event loop when a worker takes it.
    """

    tenant: str
    num_bytes: int
    priority: int = 0
    on_start: Callable[[], None] = field(default=lambda: None, compare=False)


class WorkerPool:
    """Runs pure functions in its threads. Event loop only.

    A job whose caller is cancelled never begins if it still waits. If it runs, its next
    ``checkpoint`` ends it, and its result is dropped; until then it keeps its worker.
    """

    def __init__(self, name: str, num_workers: int) -> None:
        self.num_running = 0
        self.num_abandoned = 0
        """Jobs that still run although nobody waits for them."""
        self._num_workers = num_workers
        self._queue: FairQueue[Entry[asyncio.Future[None]]] = fair_entries()
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(num_workers, thread_name_prefix=f"roseinfer-{name}")

    @property
    def num_waiting(self) -> int:
        """Jobs that wait for a worker."""
        return len(self._queue)

    async def run(
        self, turn: Turn, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function in a worker. ``turn`` is of the tenant's request."""
        await self._worker(turn)
        turn.on_start()
        job = _Job(lambda: function(*args, **kwargs))
        done = self._executor.submit(job)
        done.add_done_callback(lambda _done: self._post_end(job))
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            job.is_abandoned = True
            self.num_abandoned += not job.has_ended
            raise

    def close(self) -> None:
        """Start no more jobs. Does not wait for running ones."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _worker(self, turn: Turn) -> None:
        """Wait for a free worker and take it."""
        if self.num_running < self._num_workers:
            self.num_running += 1
            return
        waiter = self._loop.create_future()
        entry = Entry(waiter, turn.tenant, turn.num_bytes, turn.priority)
        self._queue.add(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()  # the worker was handed over in the same loop iteration
            else:
                self._queue.discard(entry)
            raise

    def _pass_on(self) -> None:
        """Hand a worker that has become free to the next job."""
        while self._queue:
            waiter = self._queue.pop().value
            if not waiter.done():  # else its caller is about to leave the queue
                waiter.set_result(None)
                return
        self.num_running -= 1

    def _post_end(self, job: _Job[Any]) -> None:
        """Called on the worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._end, job)
        except RuntimeError:  # the loop is closed
            return

    def _end(self, job: _Job[Any]) -> None:
        job.has_ended = True
        self.num_abandoned -= job.is_abandoned
        self._pass_on()


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
        """Start no more jobs. Does not wait for running ones."""
        for pool in self.all:
            pool.close()


class _Job(Generic[T]):
    """A function, and whether anything waits for its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.is_abandoned = False
        self.has_ended = False
        self._function = function

    def __call__(self) -> T:
        """Run it. Called in the worker's thread."""
        is_abandoned.set(lambda: self.is_abandoned)
        try:
            return self._function()
        finally:
            is_abandoned.set(None)
