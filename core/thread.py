"""CoreThread: the one thread that owns the engine, and the only way in and out of it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never

import msgspec

from core.contract.errors import ModelLoadError
from core.contract.messages import Abort, Add, Command, EngineRequest, EngineStats, StepOutput, Stop
from core.step_timer import StepTimer

logger = logging.getLogger("roseinfer.core")


class SteppingEngine(Protocol):
    """What the thread needs of an engine."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def add(self, request: EngineRequest) -> None:
        """Take a request."""

    def abort(self, request_id: str) -> None:
        """Forget a request."""

    def step(self) -> list[StepOutput]:
        """Run one step. An exception means that the engine cannot go on."""

    def fail_all(self, message: str) -> list[StepOutput]:
        """End every request with an error."""

    def stats(self) -> EngineStats:
        """A snapshot of the counters."""

    @property
    def timer(self) -> StepTimer:
        """Times the stages of a step, up to the delivery of its outputs."""


class Ready(msgspec.Struct, frozen=True):
    """The engine is loaded and takes requests."""


class Died(msgspec.Struct, frozen=True):
    """There is no engine any more, or never was one; every live request is lost.

    ``is_load_error`` says that the operator named something that cannot be served.
    """

    message: str
    is_load_error: bool


Event: TypeAlias = Ready | Died


class CoreThread:
    """Drives an engine: drain the inbox, step while there is work, else sleep on one event.

    ``load`` builds the engine on this thread, which owns it and everything below it. Outputs
    leave through ``on_outputs``, at most one call a step, and the engine's life through
    ``on_event``; both are called on this thread and must neither block nor raise.

    No wake-up is lost: the event is cleared before the inbox is drained, so a command that
    arrives in between leaves the event set and the next wait returns at once.
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
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="roseinfer-core", daemon=True)

    @property
    def stats(self) -> EngineStats:
        """The counters as of the last step. Any thread."""
        return self._stats

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs. Any thread."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to load. Once only."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Hand over a command; returns at once, never waits for a step. Any thread."""
        self._inbox.append(command)
        self._wake.set()

    def close(self, timeout: float) -> bool:
        """Stop after the step under way and join for at most ``timeout`` seconds.

        Every live request ends with an error. Returns whether the thread is gone. Harmless
        when repeated, or before the start.
        """
        self._stopping = True  # also seen by a thread that has not begun to read its inbox
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
        except BaseException as error:  # SystemExit, a panic in Rust: the thread reports all
            logger.exception("loading failed")
            self._on_event(Died(f"loading failed: {error}", is_load_error=True))
            return
        try:
            self._stats = engine.stats()
            if not self._stopping:
                self._on_event(Ready())
            self._loop(engine)
            self._end(engine, "The server is shutting down.")
        except BaseException as error:  # SystemExit, a panic in Rust: the thread reports all
            logger.exception("the engine died")
            # first, so that nobody is told of a failure by a server that still looks healthy
            self._on_event(Died(f"the engine died: {error}", is_load_error=False))
            try:
                self._end(engine, "The engine died.")
            except BaseException:  # in whatever state the engine is, the event has been told
                logger.exception("the requests of the dead engine could not be ended")

    def _end(self, engine: SteppingEngine, message: str) -> None:
        """End every request with an error."""
        outputs = engine.fail_all(message)
        self._stats = engine.stats()
        self._post(outputs)

    def _loop(self, engine: SteppingEngine) -> None:
        while True:
            self._wake.clear()
            self._drain(engine)
            if self._stopping:
                return
            if engine.has_work:
                outputs = engine.step()
                self._stats = engine.stats()
                self._post(outputs)
                engine.timer.lap("delivery")
            else:
                self._stats = engine.stats()
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
