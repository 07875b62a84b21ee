"""Upstream: one server that answers requests for a model, and what is known of its health.

RoutedModel: what a router knows of one model.

Watch: servers that have requests and send nothing are asked for their health.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from server.client.answer import Address, sickness
from server.router.child import Child
from server.router.config.config import RouteConfig, RoutedModelConfig
from server.router.config.policy import ModelSlot, ModelState

MAX_FAILURES = 3  # failures in a row after which a server gets a pause

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds. Each pause is twice as long as the one before."""

LOAD_BOUND = 1.25
"""A conversation leaves its server while that has this many times the mean of open requests.

Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2018.
"""

PROBE_TIMEOUT = 5.0  # seconds

MAX_SICK = 3
"""Questions in a row whether it is alive that a process may fail before it is ended."""

_turns = count()


class Upstream:
    """Event loop only. Times are seconds of the loop's clock."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.num_open = 0  # requests that it has
        self.num_failures = 0  # since it last answered
        self.is_stalled = False
        """Whether it has requests, sends nothing, and does not say that it is well."""
        self.num_sick = 0  # questions in a row whether it is alive that it has failed
        self.progress = 0.0  # when it last sent something, or was idle
        self._paused_until = 0.0
        self._last_turn = 0

    @contextmanager
    def opened(self, now: float) -> Iterator[None]:
        """Count a request."""
        if not self.num_open:
            self.progress = now
        self.num_open += 1
        self._last_turn = next(_turns)
        try:
            yield
        finally:
            self.num_open -= 1

    def is_available(self, now: float) -> bool:
        """Whether it should get requests if others can."""
        return not self.is_stalled and now >= self._paused_until

    def failed(self, now: float) -> None:
        """It could not be reached, or broke off."""
        self.num_failures += 1
        if self.num_failures >= MAX_FAILURES:
            times = min(self.num_failures - MAX_FAILURES, 10)
            self._paused_until = now + min(FIRST_PAUSE * 2**times, LONGEST_PAUSE)

    def answered(self) -> None:
        self.num_failures = 0
        self._paused_until = 0.0

    def heard(self, now: float) -> None:
        self.progress = now
        self.is_stalled = False
        self.num_sick = 0

    def tried(self, now: float) -> None:
        """It gets a request. After a pause, one request in each pause tries it."""
        if self.num_failures >= MAX_FAILURES:
            self._paused_until = max(self._paused_until, now + FIRST_PAUSE)

    def rank(self, key: bytes) -> bytes:
        """Rendezvous hashing: the servers' order for a conversation (Thaler, Ravishankar, 1998)."""
        return hashlib.blake2b(self.address.text.encode(), key=key, digest_size=8).digest()

    @property
    def order(self) -> tuple[int, int]:
        """The least loaded first; of those, the one whose last turn is longest ago."""
        return self.num_open, self._last_turn


def choose(
    upstreams: Sequence[Upstream], key: bytes, now: float, tried: Collection[Upstream] = ()
) -> Upstream | None:
    """The server for a request; None if all were tried.

    A conversation with ``key`` goes to its own server unless that has too much. If none is
    available, all are: however many servers failed before, a request tries at least one.
    """
    left = [upstream for upstream in upstreams if upstream not in tried]
    if not left:
        return None
    able = [upstream for upstream in left if upstream.is_available(now)] or left
    chosen = min(able, key=lambda upstream: upstream.order)
    if key and len(able) > 1:
        num_open = sum(upstream.num_open for upstream in able)
        most = math.ceil(LOAD_BOUND * (num_open + 1) / len(able))
        for upstream in sorted(able, key=lambda upstream: upstream.rank(key)):
            if upstream.num_open < most:
                chosen = upstream
                break
    chosen.tried(now)
    return chosen


@dataclass(slots=True, eq=False, kw_only=True)
class RoutedModel(ModelSlot):
    """A model, its servers and its counters. Event loop only.

    A model whose servers run already, elsewhere, is always READY, and the policy does not see it.
    """

    config: RoutedModelConfig
    api_key: str | None = None
    upstreams: list[Upstream] = field(default_factory=list)
    """Equal servers. Of a model whose process the router starts: one while it is ready."""
    child: Child | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    counts: Counter[str] = field(default_factory=Counter)
    """By the fields of RoutedModelStats, without ``num_``."""
    load_seconds: float = 1.0  # how long the last load took
    failure: str = ""  # why the last load failed; empty if it did not
    num_failures: int = 0  # loads in a row that have failed

    @property
    def is_ready(self) -> bool:
        return self.state is ModelState.READY

    @property
    def name_there(self) -> str | None:
        """The name that its servers know; None: they know all of its names."""
        if self.config.serve is not None and self.config.model is None:
            return None
        return self.config.model or self.name


class Watch:
    """Event loop only. Its timer runs only while requests are open: idle servers are not asked.

    A server that sends bytes makes progress, and nothing else is asked of it. One that is silent
    gets no more requests than it must while it does not say that it is well.
    """

    def __init__(self, config: RouteConfig, restart: Callable[[RoutedModel], None]) -> None:
        """``restart`` ends the process of a model that does not live any more."""
        self._loop = asyncio.get_running_loop()
        self._probe_after = config.probe_after
        self._restart = restart
        self._active: dict[Upstream, RoutedModel] = {}
        self._probes: dict[Upstream, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, model: RoutedModel, upstream: Upstream) -> None:
        """A request was sent there."""
        if self._probe_after:
            self._active[upstream] = model
            if self._timer is None:
                self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._probes.values():
            task.cancel()
        self._active.clear()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._probe_after / 2, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for upstream, model in list(self._active.items()):
            if not upstream.num_open:
                del self._active[upstream]
                upstream.num_sick = 0
            elif now - upstream.progress >= self._probe_after and upstream not in self._probes:
                task = self._loop.create_task(self._probe(model, upstream))
                self._probes[upstream] = task
                task.add_done_callback(partial(self._probed, upstream))
        if self._active:
            self._schedule()

    def _probed(self, upstream: Upstream, _task: asyncio.Task[None]) -> None:
        del self._probes[upstream]

    async def _probe(self, model: RoutedModel, upstream: Upstream) -> None:
        config, before = model.config, upstream.progress
        if not await sickness(upstream.address, config.health_path, PROBE_TIMEOUT):
            upstream.heard(self._loop.time())
        elif upstream.progress == before:
            upstream.is_stalled = True
            if model.child is None:
                return
            if not await sickness(upstream.address, config.live_path, PROBE_TIMEOUT):
                upstream.num_sick = 0
                return
            upstream.num_sick += 1
            if upstream.num_sick >= MAX_SICK:
                self._restart(model)
