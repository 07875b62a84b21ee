"""EngineBridge: the event loop's side of the core thread. ChoiceShare: which choices it gets."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum

import anyio

from core.contract.errors import RoseInferError, Unavailable, is_survivable
from core.contract.messages import Abort, Add, EngineCounters, EngineRequest, StepOutput
from core.engine.thread import CoreThread, Died, Event, Ready, SteppingEngine
from core.observe.histogram import StepHistograms
from server.bridge.stream import ResponseStream

logger = logging.getLogger("roseinfer.server")

CLOSE_TIMEOUT = 1.0
"""Seconds that the running step may take when the core thread is stopped."""

SPARE_SHARE = 8
"""One of so many sequences is left to other responses."""

DELIVERY_FAILED = "The server failed on this request."
TOO_SLOW = "The client reads too slowly."
SHUTTING_DOWN = "The server is shutting down."


class BridgeState(Enum):
    """State of the server. It only moves down this list."""

    LOADING = "loading"
    READY = "ok"
    DRAINING = "draining"
    FAILED = "failed"


_REFUSALS = {
    BridgeState.LOADING: "The model is still loading.",
    BridgeState.DRAINING: SHUTTING_DOWN,
    BridgeState.FAILED: "The engine has failed.",
}


class EngineBridge:
    """Submits requests, routes outputs to responses, starts and stops the core thread.

    Event loop only. The core thread calls two callbacks that only post to the loop.
    """

    def __init__(
        self,
        load: Callable[[], SteppingEngine],
        *,
        max_num_seqs: int = sys.maxsize,
        on_event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """``max_num_seqs`` is the engine's. ``on_event`` runs on the loop."""
        self.state = BridgeState.LOADING
        self._on_event = on_event
        self._routes: dict[str, tuple[ResponseStream, int]] = {}
        self._streams: set[ResponseStream] = set()
        self._all_closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._core = CoreThread(
            load, on_outputs=self._take, on_event=lambda event: self._post(self._handle, event)
        )
        self.progress = self._core.progress  # how long the core thread is busy with one step
        self._choices = ChoiceShare(
            further_choices(max_num_seqs), lambda request: self._core.submit(Add(request))
        )

    @property
    def stats(self) -> EngineCounters:
        """The engine's counters after its last step."""
        return self._core.stats

    @property
    def histograms(self) -> StepHistograms:
        """Distributions over the engine's steps."""
        return self._core.histograms

    def start(self) -> None:
        """Start to load the engine. Returns at once."""
        self._core.start()

    def check_accepting(self) -> None:
        """Raise Unavailable if the server takes no new work."""
        if self.state is not BridgeState.READY:
            raise Unavailable(_REFUSALS[self.state])

    def open(
        self, requests: Sequence[EngineRequest], *, on_end: Callable[[], None] | None = None
    ) -> ResponseStream:
        """Submit the requests of one response. Does not wait for a step. Raises Unavailable.

        ``on_end`` is called when a request has ended by itself.
        """
        self.check_accepting()
        stream = ResponseStream(
            requests,
            on_close=self.forget,
            on_end=on_end,
            is_engine_ready=lambda: self.state is BridgeState.READY,
            work_of=self._core.work,
        )
        self._streams.add(stream)
        self._all_closed.clear()
        for index, request in enumerate(requests):  # before the engine can produce an output
            self._routes[request.request_id] = (stream, index)
        self._choices.enter(stream, requests)
        return stream

    def forget(self, stream: ResponseStream) -> None:
        """Abort the unfinished requests of a response that is closed. Idempotent."""
        self._abort(stream)
        self._streams.discard(stream)
        if not self._streams:
            self._all_closed.set()

    def fail(self, stream: ResponseStream, error: RoseInferError) -> None:
        """End the unfinished requests of a response with an error."""
        stream.cause = error
        self._choices.leave(stream)
        for request in stream.requests:
            if request.request_id in self._routes:
                self._end(request.request_id, str(error))

    def fail_all(self, message: str) -> None:
        """End every running and waiting request with an error."""
        self._choices.clear()
        for request_id in list(self._routes):
            self._end(request_id, message)

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - it escalates, it does not cancel
        """Refuse new work and wait for open responses. After ``timeout`` seconds end them."""
        if self.state in {BridgeState.LOADING, BridgeState.READY}:
            self.state = BridgeState.DRAINING
        if await self._wait_closed(timeout):
            return
        logger.warning("%d responses are still open; ending them", len(self._streams))
        self.fail_all(SHUTTING_DOWN)
        if not await self._wait_closed(CLOSE_TIMEOUT / 2):
            self.cancel_all()
            await self._wait_closed(CLOSE_TIMEOUT / 2)

    def cancel_all(self) -> None:
        """Cancel every open response, also if it is blocked on a client."""
        for stream in list(self._streams):
            stream.cancel()

    def close(self) -> bool:
        """Stop the core thread and return whether it has ended. Idempotent."""
        if self.state is not BridgeState.FAILED:
            self.state = BridgeState.DRAINING
        self.fail_all(SHUTTING_DOWN)
        return self._core.close(CLOSE_TIMEOUT)

    def _abort(self, stream: ResponseStream) -> None:
        self._choices.leave(stream)
        for request in stream.requests:
            if self._routes.pop(request.request_id, None) is not None:
                self._core.submit(Abort(request.request_id))

    def _end(self, request_id: str, message: str) -> None:
        """End a request with an error."""
        work = self._core.work(request_id)
        self._core.submit(Abort(request_id))
        self._deliver([StepOutput(request_id=request_id, error=message, work=work)])

    async def _wait_closed(self, timeout: float) -> bool:  # noqa: ASYNC109 - returns on timeout
        if self._streams:
            with anyio.move_on_after(timeout):
                await self._all_closed.wait()
        return not self._streams

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Run a callback on the event loop. Called on the core thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed
            logger.debug("an output came after the event loop was closed")

    def _take(self, outputs: Sequence[StepOutput]) -> None:
        """Get the outputs of a step. Called on the core thread.

        The loop is lent a core until it has sent them, so that it delays no compute thread.
        """
        self._core.lend_core()
        self._post(self._deliver_step, outputs)

    def _deliver_step(self, outputs: Sequence[StepOutput]) -> None:
        try:
            self._deliver(outputs)
        finally:
            self._core.return_core()

    def _deliver(self, outputs: Sequence[StepOutput]) -> None:
        """Route the outputs of one step, and then send what each response got, in one write."""
        streams: dict[ResponseStream, None] = {}
        for output in outputs:
            route = self._routes.get(output.request_id)
            if route is None:
                continue  # the client has disconnected
            if output.is_last:
                del self._routes[output.request_id]
            stream, index = route
            streams[stream] = None
            try:
                stream.push(index, output)
            except BaseException as error:  # one response must not end the others
                if not is_survivable(error):
                    raise
                logger.exception("cannot deliver to request %s", output.request_id)
                stream.fail(DELIVERY_FAILED)  # its end aborts the requests
            if output.is_last:
                stream.ended(index, output)
                self._choices.end(stream)
        for stream in streams:
            self._flush(stream)

    def _flush(self, stream: ResponseStream) -> None:
        try:
            stream.flush()
        except BaseException as error:
            if not is_survivable(error):
                raise
            logger.exception("cannot render a response")
            stream.fail(DELIVERY_FAILED)
        if stream.is_behind:
            stream.fail(TOO_SLOW)
            self._abort(stream)

    def _handle(self, event: Event) -> None:
        match event:
            case Ready():
                if self.state is BridgeState.LOADING:
                    self.state = BridgeState.READY
            case Died():
                self.state = BridgeState.FAILED
                self.fail_all("The engine died.")
        self._on_event(event)


def further_choices(max_num_seqs: int) -> int:
    """Most further choices in the engine, so that one response leaves others a spare share."""
    return max(max_num_seqs - max(max_num_seqs // SPARE_SHARE, 1) - 1, 0)


class ChoiceShare:
    """Gives the engine the first choice of every response at once, and further ones by a limit.

    The further choices of all responses share the limit in turns, so that neither the engine's
    queue nor its batch fills up with the choices of one response. Event loop only.
    """

    def __init__(self, limit: int, submit: Callable[[EngineRequest], None]) -> None:
        """``limit`` is on running choices beyond the first one of each response."""
        self._limit = limit
        self._submit = submit
        self._num_further = 0
        self._running: dict[Hashable, int] = {}  # of responses with more than one choice
        self._waiting: dict[Hashable, deque[EngineRequest]] = {}  # the next response first

    def enter(self, response: Hashable, requests: Sequence[EngineRequest]) -> None:
        """Submit what may be submitted."""
        self._submit(requests[0])
        if len(requests) > 1:
            self._running[response] = 1
            self._waiting[response] = deque(requests[1:])
            self._fill()

    def end(self, response: Hashable) -> None:
        """A choice of the response has ended."""
        if response in self._running:
            self._move(response, -1)
            if not self._running[response] and response in self._waiting:
                self._start(response)  # it is no further one
            self._fill()

    def leave(self, response: Hashable) -> None:
        """Submit nothing more of the response. Idempotent."""
        if response in self._running:
            self._waiting.pop(response, None)
            self._move(response, -self._running[response])
            del self._running[response]
            self._fill()

    def clear(self) -> None:
        """Submit nothing more."""
        self._waiting.clear()

    def _fill(self) -> None:
        while self._waiting and self._num_further < self._limit:
            self._start(next(iter(self._waiting)))

    def _start(self, response: Hashable) -> None:
        waiting = self._waiting.pop(response)
        request = waiting.popleft()
        if waiting:
            self._waiting[response] = waiting  # behind the others
        self._move(response, 1)
        self._submit(request)

    def _move(self, response: Hashable, change: int) -> None:
        """Change the number of running choices. All but one are further ones."""
        before = self._running[response]
        self._running[response] = before + change
        self._num_further += max(before + change - 1, 0) - max(before - 1, 0)
