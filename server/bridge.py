"""EngineBridge: the core thread's face on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from anyio import WouldBlock

from core.contract.errors import (
    GenerationFailed,
    InvalidRequest,
    QueueFull,
    RoseInferError,
    Unavailable,
)
from core.contract.messages import Abort, Add, EngineRequest, EngineStats, StepOutput, merge
from core.thread import CoreThread, Died, Event, Ready, SteppingEngine

logger = logging.getLogger("roseinfer.server")

BUFFERED_OUTPUTS = 32
"""Outputs a reader may be behind before its pending ones are merged."""

CLOSE_TIMEOUT = 1.0
"""Seconds that the step under way gets to end when the core thread is stopped."""


ChoiceOutput: TypeAlias = tuple[int, StepOutput]
"""The index of a choice, and what a step gave it."""


class State(Enum):
    """What the server can do. It only ever moves down this list."""

    LOADING = "loading"
    READY = "ok"
    DRAINING = "draining"
    FAILED = "failed"


class ResponseStream:
    """What the engine says to one HTTP response: outputs of all its choices, as they come.

    Leaving it (``async with``) aborts whatever is unfinished. Event loop only.
    """

    def __init__(self, bridge: EngineBridge, requests: Sequence[EngineRequest]) -> None:
        self._bridge = bridge
        self._requests = requests
        self._num_unfinished = len(requests)
        self._send, self._receive = anyio.create_memory_object_stream[ChoiceOutput](
            BUFFERED_OUTPUTS
        )
        self._num_buffered = 0
        self._backlog: dict[int, StepOutput] = {}
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None  # the reader, if it has read all
        self._scope: anyio.CancelScope | None = None

    def __len__(self) -> int:
        """Number of choices."""
        return len(self._requests)

    @property
    def requests(self) -> Sequence[EngineRequest]:
        """The engine requests behind the choices, by choice index."""
        return self._requests

    @property
    def is_finished(self) -> bool:
        """Whether every choice's last output has been received."""
        return self._num_unfinished == 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Abort what is unfinished. Harmless when repeated."""
        self._bridge.forget(self)
        self._send.close()
        self._receive.close()

    def bind(self, scope: anyio.CancelScope) -> None:
        """Name the scope that ``cancel`` cancels: the one around the whole sending."""
        self._scope = scope

    def cancel(self) -> None:
        """Give the response up, even if it is blocked on a client that does not read."""
        if self._scope is not None:
            self._scope.cancel()

    def push(self, index: int, output: StepOutput) -> None:
        """Hand over an output; never waits. A reader far behind gets its outputs merged."""
        if self._backlog:
            earlier = self._backlog.get(index)
            self._backlog[index] = output if earlier is None else merge(earlier, output)
            return
        try:
            self._send.send_nowait((index, output))
            self._num_buffered += 1
        except WouldBlock:
            self._backlog[index] = output
        self.nudge()

    def nudge(self) -> None:
        """Let a reader that waits come back, be it with nothing; else there is nothing to do."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> list[ChoiceOutput]:
        """Wait for outputs or a nudge, and take all that is there. One reader only.

        Whatever a step or several gave costs one wait. It is not the memory stream's own wait,
        which takes two turns of the loop.
        """
        if not self._num_buffered:
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self.take()

    def take(self) -> list[ChoiceOutput]:
        """All outputs that are there, maybe none; those of a choice in their order."""
        outputs = [self._receive.receive_nowait() for _ in range(self._num_buffered)]
        self._num_buffered = 0
        if self._backlog:
            outputs += self._backlog.items()
            self._backlog.clear()
        for _, output in outputs:
            self._num_unfinished -= output.is_last
        return outputs

    def failure(self, output: StepOutput) -> RoseInferError:
        """The exception that an output's error is; one that ends with the server may be retried."""
        assert output.error is not None
        if self._bridge.state is State.READY:
            return GenerationFailed(output.error)
        return Unavailable(output.error)


class EngineBridge:
    """Admission, routing of outputs to responses, and the life of the core thread.

    Event loop only, but for the two callbacks that the core thread calls, which do nothing but
    hand over to the loop.
    """

    def __init__(
        self,
        load: Callable[[], SteppingEngine],
        *,
        max_in_flight: int,
        on_event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """``max_in_flight`` bounds the requests that run or wait; ``on_event`` runs on the loop."""
        self.state = State.LOADING
        self.failure: str | None = None
        self._max_in_flight = max_in_flight
        self._on_event = on_event
        self._routes: dict[str, tuple[ResponseStream, int]] = {}
        self._streams: set[ResponseStream] = set()
        self._all_closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._core = CoreThread(
            load,
            on_outputs=lambda outputs: self._post(self._deliver, outputs),
            on_event=lambda event: self._post(self._handle, event),
        )

    @property
    def stats(self) -> EngineStats:
        """The engine's counters as of its last step."""
        return self._core.stats

    @property
    def num_in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self._routes)

    def start(self) -> None:
        """Begin to load the engine; returns at once."""
        self._core.start()

    def check_accepting(self) -> None:
        """Raise Unavailable unless new work is taken."""
        match self.state:
            case State.READY:
                return
            case State.LOADING:
                raise Unavailable("The model is still loading.")
            case State.DRAINING:
                raise Unavailable("The server is shutting down.")
            case State.FAILED:
                raise Unavailable("The engine has failed.")

    def check_room(self, num_requests: int) -> None:
        """Raise QueueFull, or InvalidRequest if there will never be room for so many at once."""
        if num_requests > self._max_in_flight:
            raise InvalidRequest(
                f"This asks for {num_requests} generations at once; "
                f"the server takes at most {self._max_in_flight}.",
                param="n",
                code="invalid_value",
            )
        if self.num_in_flight + num_requests > self._max_in_flight:
            raise QueueFull("Too many requests are waiting.")

    def open(self, requests: Sequence[EngineRequest]) -> ResponseStream:
        """Admit the requests of one response and submit them; returns without waiting for a step.

        Raises Unavailable, QueueFull, or InvalidRequest if they could never be admitted.
        """
        self.check_accepting()
        self.check_room(len(requests))
        stream = ResponseStream(self, requests)
        self._streams.add(stream)
        self._all_closed.clear()
        for index, request in enumerate(requests):  # registered before the engine can answer
            self._routes[request.request_id] = (stream, index)
        for request in requests:
            self._core.submit(Add(request))
        return stream

    def forget(self, stream: ResponseStream) -> None:
        """Abort what is unfinished of a response that is over. Harmless when repeated."""
        for request in stream.requests:
            if self._routes.pop(request.request_id, None) is not None:
                self._core.submit(Abort(request.request_id))
        self._streams.discard(stream)
        if not self._streams:
            self._all_closed.set()

    def fail_all(self, message: str) -> None:
        """End every live request with an error."""
        for request_id in list(self._routes):
            self._core.submit(Abort(request_id))
            self._route(StepOutput(request_id=request_id, error=message))

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - it does not cancel, it escalates
        """Refuse new work, let open responses end, and after ``timeout`` seconds end them."""
        if self.state in {State.LOADING, State.READY}:
            self.state = State.DRAINING
        if await self._wait_closed(timeout):
            return
        logger.warning("%d responses are still open; ending them", len(self._streams))
        self.fail_all("The server is shutting down.")
        if not await self._wait_closed(CLOSE_TIMEOUT / 2):
            self.cancel_all()
            await self._wait_closed(CLOSE_TIMEOUT / 2)

    def cancel_all(self) -> None:
        """Give up every open response, read or not."""
        for stream in list(self._streams):
            stream.cancel()

    def close(self) -> bool:
        """Stop the core thread; returns whether it is gone. Harmless when repeated."""
        if self.state is not State.FAILED:
            self.state = State.DRAINING
        self.fail_all("The server is shutting down.")
        return self._core.close(CLOSE_TIMEOUT)

    async def _wait_closed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a wait, not a call
        if self._streams:
            with anyio.move_on_after(timeout):
                await self._all_closed.wait()
        return not self._streams

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Hand over to the loop. Core thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            logger.debug("an output came after the event loop was closed")

    def _deliver(self, outputs: Sequence[StepOutput]) -> None:
        """Route one step's outputs to their responses."""
        for output in outputs:
            self._route(output)

    def _route(self, output: StepOutput) -> None:
        route = self._routes.get(output.request_id)
        if route is None:
            return  # its client has left
        if output.is_last:
            del self._routes[output.request_id]
        stream, index = route
        stream.push(index, output)

    def _handle(self, event: Event) -> None:
        match event:
            case Ready():
                if self.state is State.LOADING:
                    self.state = State.READY
            case Died(message):
                self.state, self.failure = State.FAILED, message
                self.fail_all("The engine died.")
        self._on_event(event)
