"""Lane: worker threads for one kind of work, with a fair waiting line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from server.admission.checkpoint import is_abandoned
from server.admission.fair_line import FairLine

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose work it is, how much, and its place among the tenant's own: the lowest is first.

    ``on_start`` is called on the event loop when a worker takes it.
    """

    tenant: str
    num_bytes: int
    priority: int = 0
    on_start: Callable[[], None] = field(default=lambda: None, compare=False)


class Lane:
    """Runs pure functions in its worker threads. Event loop only.

    A job whose caller is cancelled never begins if it still waits. If it runs, its next
    ``checkpoint`` ends it, and its result is dropped; until then it keeps its worker.
    """

    def __init__(self, name: str, num_workers: int) -> None:
        self.num_running = 0
        self.num_abandoned = 0
        """Jobs that still run although nobody waits for them."""
        self._num_workers = num_workers
        self._line: FairLine[asyncio.Future[None]] = FairLine()
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(num_workers, thread_name_prefix=f"roseinfer-{name}")

    @property
    def num_waiting(self) -> int:
        """Jobs that wait for a worker."""
        return len(self._line)

    async def run(
        self,
        turn: Turn,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function in a worker. ``turn`` is of the tenant's request, for fair turns."""
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
        self._line.push(turn.tenant, max(turn.num_bytes, 1), waiter, priority=turn.priority)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()  # the worker was handed over in the same turn of the loop
            else:
                self._line.discard(waiter)
            raise

    def _pass_on(self) -> None:
        """Hand a worker that has become free to the next in line."""
        while self._line:
            waiter = self._line.pop()
            if not waiter.done():  # else its caller is about to leave the line
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
