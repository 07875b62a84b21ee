"""Fleet: all models of a router. It loads and unloads their processes and lets requests in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from server.admission.budget import Budget
from server.http.errors import APIError
from server.router.child import Child, LoadFailed
from server.router.config.config import RouteConfig, RoutedModelConfig
from server.router.config.policy import MemoryBudget, ModelState, next_due, plan
from server.router.upstream import RoutedModel, Upstream, Watch

logger = logging.getLogger("roseinfer.route")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a model that failed to load is tried again; each pause is twice the last."""

SOON = 10.0
"""Seconds: a process that ends by itself so soon after it got ready has failed to load.

Once is an accident: the second time in a row begins the pauses.
"""

LAST_MOMENT = 1.0  # seconds between the end of a process's socket and its own end


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
        self.names = config.names()  # that requests may use, with the names of their models
        self.line = Budget(config.max_waiting, full="Too many requests are waiting for models.")
        self._started = [model for model in self.models.values() if model.config.is_started]
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.watch = Watch(config, self._restart)

    def start(self) -> None:
        """Load the models that are to be loaded before the first request."""
        for model in self._started:
            if model.config.preload:
                model.wanted_since = self._loop.time()
        self.replan()

    async def close(self) -> None:
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
        while actions := plan(self._started, self._room, now):
            for state, slot in actions:
                self._act(state, self.models[slot.name])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = next_due(self._started, self._room, now)
        if due is not None:
            self._timer = self._loop.call_at(due, self.replan)

    @contextlib.contextmanager
    def joined(self, model: RoutedModel, tenant: str) -> Iterator[asyncio.Future[None]]:
        """Ask for a place among the model's requests. The future ends when there is one.

        Raises QueueFull, or APIError if the model cannot be loaded at the moment; so may the
        future.
        """
        future = self._join(model, tenant)
        try:
            yield future
        finally:
            if not future.done():
                future.cancel()
                model.waiting.remove(future)
                model.num_waiting -= 1
                if not model.num_waiting:
                    model.wanted_since = None
                self.replan()
            elif not future.cancelled() and future.exception() is None:
                model.num_inside -= 1
                model.last_used = self._loop.time()
                if not model.num_inside:
                    self.replan()

    def _join(self, model: RoutedModel, tenant: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        if model.is_ready:
            self._admit(model, future)
            return future
        self.line.take(tenant, 1)
        future.add_done_callback(lambda _done: self.line.give_back(tenant, 1))
        now = self._loop.time()
        if model.retry_at > now and model.state is ModelState.UNLOADED:
            future.cancel()
            raise self._not_loaded(model)
        model.waiting.append(future)
        model.num_waiting += 1
        if model.wanted_since is None:
            model.wanted_since = now
        self.replan()
        return future

    async def is_gone(self, model: RoutedModel) -> bool:
        """Whether the process of a model has ended, or ends in a moment."""
        child = model.child
        if child is None:
            return model.config.is_started
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.exited(), LAST_MOMENT)
        if child.has_exited:
            self._exited(model, child)
        return child.has_exited

    def unavailable(self, model: RoutedModel, message: str) -> APIError:
        """A 503 that says when the model should be there."""
        wait = max(model.load_seconds, model.retry_at - self._loop.time())
        return APIError(
            503,
            message,
            type_="service_unavailable_error",
            code="server_is_overloaded",
            headers={"retry-after": str(max(1, math.ceil(wait)))},
        )

    # What the policy asks for

    def _act(self, state: ModelState, model: RoutedModel) -> None:
        model.state = state
        match state:
            case ModelState.LOADING:
                self._spawn(self._load(model))
            case ModelState.READY:
                self._admit_all(model)
            case ModelState.STOPPING:
                logger.info("unloading %s", model.name)
                self._spawn(self._end(model, was_asked=True))

    async def _load(self, model: RoutedModel) -> None:
        start = self._loop.time()
        logger.info("loading %s", model.name)
        try:
            model.child = await Child.start(model.name, model.config, self._environ)
            await model.child.wait_ready(self._config.load_timeout)
        except (LoadFailed, OSError, ValueError) as failure:  # no descriptor, no room in /tmp
            await self._discard(model)
            self._load_failed(model, str(failure))
            return
        now = self._loop.time()
        model.load_seconds = now - start
        model.counts["loads"] += 1
        model.failure = ""
        logger.info("loaded %s in %.1f s", model.name, model.load_seconds)
        model.upstreams = [Upstream(model.child.address)]
        model.state = ModelState.READY
        model.ready_since = model.last_used = now
        model.displaced.clear()
        self._spawn(self._notice_exit(model, model.child))
        self._admit_all(model)
        self.replan()

    def _load_failed(self, model: RoutedModel, reason: str) -> None:
        """Refuse who waits, pause, and bring back what was unloaded for it."""
        logger.error("cannot load %s: %s", model.name, reason)
        now = self._loop.time()
        model.counts["failed_loads"] += 1
        model.failure = reason
        self._pause(model, now)
        model.state = ModelState.UNLOADED
        model.wanted_since = None
        while model.waiting:
            model.num_waiting -= 1
            model.waiting.popleft().set_exception(self._not_loaded(model))
        for other in model.displaced:
            if other.wanted_since is None:
                other.wanted_since = now
        model.displaced.clear()
        self.replan()

    def _pause(self, model: RoutedModel, now: float) -> None:
        times = min(model.num_failures, 10)
        model.num_failures += 1
        model.retry_at = now + min(FIRST_PAUSE * 2**times, LONGEST_PAUSE)

    async def _end(self, model: RoutedModel, *, was_asked: bool) -> None:
        """End the process of a model, or what it has left."""
        await self._discard(model)
        if was_asked:
            model.counts["unloads"] += 1
            model.num_failures = 0
        model.state = ModelState.UNLOADED
        if model.waiting and model.wanted_since is None:
            model.wanted_since = self._loop.time()
        self.replan()

    async def _discard(self, model: RoutedModel) -> None:
        model.upstreams = []
        if model.child is not None:
            await model.child.stop(self._config.stop_timeout)
            model.child = None

    async def _notice_exit(self, model: RoutedModel, child: Child) -> None:
        await child.exited()
        self._exited(model, child)

    def _exited(self, model: RoutedModel, child: Child) -> None:
        """A process has ended by itself: its streams have ended with it. Idempotent."""
        if model.child is not child or model.state is ModelState.STOPPING:
            return
        logger.error("the process of %s has ended by itself", model.name)
        model.counts["crashes"] += 1
        now = self._loop.time()
        if now - model.ready_since >= SOON:
            model.num_failures = 0
        elif model.num_failures == 0:
            model.num_failures = 1
        else:
            self._pause(model, now)
            model.failure = "its process ends by itself"
        model.state = ModelState.STOPPING
        self._spawn(self._end(model, was_asked=False))

    def _restart(self, model: RoutedModel) -> None:
        """End a process that hangs. The next request loads the model again."""
        if model.child is not None and model.is_ready:
            logger.error("%s hangs: ending its process", model.name)
            model.child.kill()

    # Requests

    def _admit(self, model: RoutedModel, future: asyncio.Future[None]) -> None:
        model.num_inside += 1
        model.last_used = self._loop.time()
        future.set_result(None)

    def _admit_all(self, model: RoutedModel) -> None:
        model.wanted_since = None
        while model.waiting:
            model.num_waiting -= 1
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
            return RoutedModel(
                name, state=ModelState.READY, config=config, api_key=key, upstreams=upstreams
            )
        keep_alive = self._config.keep_alive if config.keep_alive is None else config.keep_alive
        return RoutedModel(
            name, config.num_memory_bytes, keep_alive or math.inf, config=config, api_key=key
        )
