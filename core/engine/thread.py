"""CoreThread: the thread that owns the engine, and its interface to other threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never

import msgspec

from core.contract.errors import ModelLoadError
from core.contract.messages import (
    Abort,
    Add,
    Command,
    EngineCounters,
    EngineRequest,
    StepOutput,
    Stop,
    Work,
)
from core.observe.histogram import StepHistograms
from core.observe.step_timer import Progress, StepTimer
from core.system.hand_over import HandOver

logger = logging.getLogger("roseinfer.core")


class SteppingEngine(Protocol):
    """The interface of an engine to its thread."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def add(self, request: EngineRequest) -> None: ...

    def abort(self, request_id: str) -> None: ...

    def step(self) -> list[StepOutput]:
        """Run one step. Raises if the engine cannot continue."""

    def prepare(self, *, is_idle: bool) -> bool:
        """Prepare a little for later steps, without work or, if it is needed soon, after a step.

        Returns whether it did anything.
        """

    def fail_all(self, message: str) -> list[StepOutput]:
        """End every request with an error."""

    def stats(self) -> EngineCounters: ...

    def work(self, request_id: str) -> Work | None:
        """Return the work done so far for a request that has not ended. Any thread, at any time."""

    @property
    def timer(self) -> StepTimer:
        """Times the stages of a step; the thread adds the delivery of its outputs.

        Its ``hand_over`` says whether they wait for the next step, which releases them then.
        """


class Ready(msgspec.Struct, frozen=True):
    """The engine is loaded and accepts requests."""


class Died(msgspec.Struct, frozen=True):
    """The engine failed to load or died; every live request is lost."""

    message: str
    is_load_error: bool


Event: TypeAlias = Ready | Died


class CoreThread:
    """Drives an engine: drain the inbox, step while there is work, otherwise wait for an event.

    ``load`` builds the engine on this thread, which owns it. ``on_outputs`` gets the outputs, with
    at most one call per step, and ``on_event`` the state of the engine; both are called on this
    thread and must neither block nor raise. While there is more work, the outputs of a step may
    come when the next one begins to compute (``HandOver``).

    No wake-up is lost: the event is cleared before the inbox is drained, so a command that
    arrives in between sets the event again and the next wait returns at once.
    """

    def __init__(
        self,
        load: Callable[[], SteppingEngine],
        *,
        on_outputs: Callable[[list[StepOutput]], None],
        on_event: Callable[[Event], None],
    ) -> None:
        self._load = load
        self._on_outputs = on_outputs
        self._on_event = on_event
        self._inbox: deque[Command] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._stats = EngineCounters()
        self._engine: SteppingEngine | None = None  # for what any thread may call
        self._timer = StepTimer()  # the engine's, once it is loaded
        self._hand_over = HandOver()
        self.progress = Progress()
        """Of each step with the commands before it. Any thread."""
        self._thread = threading.Thread(target=self._run, name="roseinfer-core", daemon=True)

    @property
    def stats(self) -> EngineCounters:
        """The counters as of the last step. Any thread."""
        return self._stats

    def work(self, request_id: str) -> Work | None:
        """Return the work done so far for a request that has not ended. Any thread.

        None if the engine does not have it, or has done nothing to report.
        """
        return None if self._engine is None else self._engine.work(request_id)

    @property
    def histograms(self) -> StepHistograms:
        """Distributions over the steps. Any thread."""
        return self._timer.histograms

    @property
    def is_alive(self) -> bool:
        """Any thread."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, which loads the engine. Once only."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Put a command into the inbox, without waiting for a step. Any thread."""
        self._inbox.append(command)
        self._wake.set()

    def lend_core(self) -> None:
        """Lend a core to the thread that will get the outputs, which then returns it.

        For ``on_outputs``. It has no effect where there are cores to spare.
        """
        self._hand_over.lend()

    def return_core(self) -> None:
        """Return a core before the step is over. Any thread."""
        self._hand_over.give_back()

    def close(self, timeout: float) -> bool:
        """Stop after the current step and join for at most ``timeout`` seconds.

        Every live request ends with an error. Returns whether the thread has ended. May be
        called repeatedly, and before ``start``.
        """
        self._stopping = True  # a thread that still loads does not read its inbox
        self.submit(Stop())
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            engine = self._load()
        except ModelLoadError as error:
            self._on_event(Died(str(error), is_load_error=True))
            return
        except BaseException as error:  # also SystemExit and a panic in Rust
            logger.exception("loading failed")
            self._on_event(Died(f"loading failed: {error}", is_load_error=True))
            return
        try:
            self._stats = engine.stats()
            self._engine = engine
            self._timer = engine.timer
            self._hand_over = engine.timer.hand_over
            if not self._stopping:
                self._on_event(Ready())
            self._loop(engine)
            self._end(engine, "The server is shutting down.")
        except BaseException as error:  # also SystemExit and a panic in Rust
            logger.exception("the engine died")
            # first: the server must be unhealthy before a client sees its request fail
            self._on_event(Died(f"the engine died: {error}", is_load_error=False))
            try:
                self._end(engine, "The engine died.")
            except BaseException:  # the dead engine may be in any state
                logger.exception("cannot end the requests of the dead engine")

    def _end(self, engine: SteppingEngine, message: str) -> None:
        """End every request with an error."""
        self._hand_over.release()
        outputs = engine.fail_all(message)
        self._stats = engine.stats()
        self._post(outputs)

    def _loop(self, engine: SteppingEngine) -> None:
        while True:
            self.progress.begin()
            self._wake.clear()
            self._drain(engine)
            if self._stopping:
                return
            if engine.has_work:
                outputs = engine.step()
                self._stats = engine.stats()
                self._hand_over.release()  # if the step computed nothing
                if outputs and self._hand_over.may_wait and engine.has_work:
                    self._hand_over.keep(self._on_outputs, outputs)
                else:
                    self._post(outputs)
                engine.timer.end()
                engine.prepare(is_idle=False)
            else:
                self._hand_over.release()  # what was left was aborted
                self._stats = engine.stats()
                self.progress.end()
                while not self._wake.is_set() and engine.prepare(is_idle=True):
                    pass
                self._wake.wait()

    def _drain(self, engine: SteppingEngine) -> None:
        while self._inbox:
            command = self._inbox.popleft()
            match command:
                case Add(request):
                    engine.add(request)
                case Abort(request_id):
                    engine.abort(request_id)
                case Stop():
                    self._stopping = True
                case _:
                    assert_never(command)

    def _post(self, outputs: list[StepOutput]) -> None:
        if outputs:
            self._on_outputs(outputs)
