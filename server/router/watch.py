"""Watch: servers that have requests and send nothing are asked for their health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from server.client.answer import sickness
from server.router.config.config import RouteConfig
from server.router.upstream import RoutedModel, Upstream

PROBE_TIMEOUT = 5.0
"""Seconds."""

MAX_SICK = 3
"""Questions in a row whether it is alive that a process may fail before it is ended."""


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
        """Ask nothing any more."""
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
