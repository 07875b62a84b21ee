"""Fleet: all models of a router. It loads and unloads their processes and lets requests in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Mapping
from typing import Any

from server.admission.budget import Budget
from server.http.errors import APIError
from server.router.config.config import RouteConfig, RoutedModelConfig
from server.router.config.policy import Action, MemoryBudget, ModelSlot, ModelState, next_due, plan
from server.router.upstreams.child import Child, LoadFailed
from server.router.upstreams.model import RoutedModel
from server.router.upstreams.upstream import Upstream
from server.router.upstreams.watch import Watch

logger = logging.getLogger("roseinfer.route")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a model that failed to load is tried again; each pause is twice the last."""

SOON = 10.0
"""Seconds: a process that ends by itself so soon after it got ready has failed to load.

Once is an accident: the second time in a row begins the pauses.
"""

LAST_MOMENT = 1.0
"""Seconds between the end of a process's socket and its own end."""


class Fleet:
    """Event loop only. Nothing runs while no request is open and no model is loaded."""

    def __init__(self, config: RouteConfig, environ: Mapping[str, str]) -> None:
        """``environ`` is what processes get, and where keys of servers are."""
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._environ = environ
        self._room = MemoryBudget(
            max_loaded=config.max_loaded or math.inf,
            memory=config.num_memory_bytes or math.inf,
            min_loaded=config.min_loaded,
        )
        self.models = {name: self._model(name, one) for name, one in config.models.items()}
        self.line = Budget(
            config.max_waiting,
            full="Too many requests are waiting for models.",
            never="",
            clock=self._loop.time,
        )
        self._slots = [m.slot for m in self.models.values() if m.slot is not None]
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.watch = Watch(config, self._restart)

    def start(self) -> None:
        """Load the models that are to be loaded before the first request."""
        for model in self.models.values():
            if model.slot is not None and model.config.preload:
                model.slot.wanted_since = self._loop.time()
        self.replan()

    async def close(self) -> None:
        """Stop all processes."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.watch.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        children = [model.child for model in self.models.values() if model.child is not None]
        await asyncio.gather(*(child.stop(self._config.stop_timeout) for child in children))

    def replan(self) -> None:
        """Load and unload what the policy says now. Call it after every change."""
        if self._is_closed:
            return
        now = self._loop.time()
        while actions := plan(self._slots, self._room, now):
            for action, slot in actions:
                self._act(action, self.models[slot.name], slot)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = next_due(self._slots, self._room, now)
        if due is not None:
            self._timer = self._loop.call_at(due, self.replan)

    def join(self, model: RoutedModel) -> asyncio.Future[None]:
        """Ask for a place. The future ends when the request has one, or raises APIError."""
        future: asyncio.Future[None] = self._loop.create_future()
        slot = model.slot
        if slot is None or slot.state is ModelState.READY:
            self._admit(model, future)
            return future
        now = self._loop.time()
        if slot.retry_at > now and slot.state is ModelState.UNLOADED:
            raise self._not_loaded(model)
        model.waiting.append(future)
        slot.num_waiting += 1
        if slot.wanted_since is None:
            slot.wanted_since = now
        self.replan()
        return future

    def leave(self, model: RoutedModel, future: asyncio.Future[None]) -> None:
        """Give back a place, or stop waiting for one."""
        slot = model.slot
        if not future.done():
            future.cancel()
            model.waiting.remove(future)
            assert slot is not None
            slot.num_waiting -= 1
            if not slot.num_waiting:
                slot.wanted_since = None
            self.replan()
        elif not future.cancelled() and future.exception() is None:
            model.num_inside -= 1
            if slot is not None:
                slot.num_inside -= 1
                slot.last_used = self._loop.time()
                if not slot.num_inside:
                    self.replan()

    async def is_gone(self, model: RoutedModel) -> bool:
        """Whether the process of a model has ended, or ends in a moment."""
        child = model.child
        if model.slot is None or child is None:
            return model.slot is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.exited(), LAST_MOMENT)
        if child.has_exited:
            self._exited(model, model.slot, child)
        return child.has_exited

    def unavailable(self, model: RoutedModel, message: str) -> APIError:
        """A 503 that says when the model should be there."""
        wait = model.load_seconds
        if model.slot is not None:
            wait = max(wait, model.slot.retry_at - self._loop.time())
        return APIError(
            503,
            message,
            type_="service_unavailable_error",
            code="server_is_overloaded",
            headers={"retry-after": str(max(1, math.ceil(wait)))},
        )

    # What the policy asks for

    def _act(self, action: Action, model: RoutedModel, slot: ModelSlot) -> None:
        match action:
            case Action.LOAD:
                slot.state = ModelState.LOADING
                self._spawn(self._load(model, slot))
            case Action.DRAIN:
                slot.state = ModelState.DRAINING
            case Action.KEEP:
                slot.state = ModelState.READY
                self._admit_all(model)
            case Action.STOP:
                slot.state = ModelState.STOPPING
                self._spawn(self._stop(model, slot))

    async def _load(self, model: RoutedModel, slot: ModelSlot) -> None:
        start = self._loop.time()
        logger.info("loading %s", model.name)
        try:
            model.child = await Child.start(model.name, model.config, self._environ)
            await model.child.wait_ready(self._config.load_timeout)
        except (LoadFailed, OSError, ValueError) as failure:  # no descriptor, no room in /tmp
            await self._discard(model)
            self._load_failed(model, slot, str(failure))
            return
        now = self._loop.time()
        model.load_seconds = now - start
        model.counts["loads"] += 1
        model.failure = ""
        logger.info("loaded %s in %.1f s", model.name, model.load_seconds)
        model.upstreams = [Upstream(model.child.address)]
        slot.state = ModelState.READY
        slot.ready_since = slot.last_used = now
        slot.displaced.clear()
        self._spawn(self._notice_exit(model, slot, model.child))
        self._admit_all(model)
        self.replan()

    def _load_failed(self, model: RoutedModel, slot: ModelSlot, reason: str) -> None:
        """Refuse who waits, pause, and bring back what was unloaded for it."""
        logger.error("cannot load %s: %s", model.name, reason)
        now = self._loop.time()
        model.counts["failed_loads"] += 1
        model.failure = reason
        self._pause(model, slot, now)
        slot.state = ModelState.UNLOADED
        slot.wanted_since = None
        while model.waiting:
            slot.num_waiting -= 1
            model.waiting.popleft().set_exception(self._not_loaded(model))
        for other in slot.displaced:
            if other.wanted_since is None:
                other.wanted_since = now
        slot.displaced.clear()
        self.replan()

    def _pause(self, model: RoutedModel, slot: ModelSlot, now: float) -> None:
        times = min(model.num_failures, 10)
        model.num_failures += 1
        slot.retry_at = now + min(FIRST_PAUSE * 2**times, LONGEST_PAUSE)

    async def _stop(self, model: RoutedModel, slot: ModelSlot) -> None:
        logger.info("unloading %s", model.name)
        await self._discard(model)
        model.counts["unloads"] += 1
        model.num_failures = 0
        self._unloaded(model, slot)

    async def _discard(self, model: RoutedModel) -> None:
        model.upstreams = []
        if model.child is not None:
            await model.child.stop(self._config.stop_timeout)
            model.child = None

    def _unloaded(self, model: RoutedModel, slot: ModelSlot) -> None:
        slot.state = ModelState.UNLOADED
        if model.waiting and slot.wanted_since is None:
            slot.wanted_since = self._loop.time()
        self.replan()

    async def _notice_exit(self, model: RoutedModel, slot: ModelSlot, child: Child) -> None:
        await child.exited()
        self._exited(model, slot, child)

    def _exited(self, model: RoutedModel, slot: ModelSlot, child: Child) -> None:
        """A process has ended by itself: its streams have ended with it. Idempotent."""
        if model.child is not child or slot.state is ModelState.STOPPING:
            return
        logger.error("the process of %s has ended by itself", model.name)
        model.counts["crashes"] += 1
        now = self._loop.time()
        if now - slot.ready_since >= SOON:
            model.num_failures = 0
        elif model.num_failures == 0:
            model.num_failures = 1
        else:
            self._pause(model, slot, now)
            model.failure = "its process ends by itself"
        slot.state = ModelState.STOPPING
        self._spawn(self._bury(model, slot))

    async def _bury(self, model: RoutedModel, slot: ModelSlot) -> None:
        await self._discard(model)
        self._unloaded(model, slot)

    def _restart(self, model: RoutedModel) -> None:
        """End a process that hangs. The next request loads the model again."""
        if model.child is not None and model.is_ready:
            logger.error("%s hangs: ending its process", model.name)
            model.child.kill()

    # Requests

    def _admit(self, model: RoutedModel, future: asyncio.Future[None]) -> None:
        model.num_inside += 1
        if model.slot is not None:
            model.slot.num_inside += 1
            model.slot.last_used = self._loop.time()
        future.set_result(None)

    def _admit_all(self, model: RoutedModel) -> None:
        slot = model.slot
        assert slot is not None
        slot.wanted_since = None
        while model.waiting:
            slot.num_waiting -= 1
            self._admit(model, model.waiting.popleft())

    def _not_loaded(self, model: RoutedModel) -> APIError:
        message = f"The model '{model.name}' cannot be loaded: {model.failure}."
        return self.unavailable(model, message)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _model(self, name: str, config: RoutedModelConfig) -> RoutedModel:
        # A secret's line end, in a header, would end the request.
        key = self._environ.get(config.api_key_env or "", "").strip() or None
        if not config.is_started:
            upstreams = [Upstream(address) for address in config.addresses]
            return RoutedModel(name, config, key, None, upstreams)
        keep_alive = self._config.keep_alive if config.keep_alive is None else config.keep_alive
        slot = ModelSlot(name, config.num_memory_bytes, keep_alive or math.inf)
        return RoutedModel(name, config, key, slot, [])
