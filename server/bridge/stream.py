"""ResponseStream: the engine's outputs for one HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeAlias

import anyio

from core.contract.errors import GenerationFailed, InvalidRequest, RoseInferError, Unavailable
from core.contract.messages import EngineRequest, FinishReason, StepOutput, Work, merge

BUFFERED_OUTPUTS = 32
"""Outputs that a slow reader may fall behind before its pending outputs are merged."""

MAX_UNREAD = 256 * 1024
"""Characters of merged outputs that a reader may fall behind before the response is ended."""

ChoiceOutput: TypeAlias = tuple[int, StepOutput]
"""A choice index and an output of that choice."""

Relay: TypeAlias = Callable[[list[ChoiceOutput]], bool]
"""Takes outputs in place of the waiting reader. False: it has done nothing, the reader must."""


class ChoiceEnd(NamedTuple):
    """The end of a choice and the engine's work for it. No reason: it did not end by itself."""

    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    work: Work | None = None


class ResponseStream:
    """Receives the outputs of all choices of a response. One reader; event loop only.

    Leaving it (``with``) aborts the unfinished requests.
    """

    def __init__(
        self,
        requests: Sequence[EngineRequest],
        *,
        on_close: Callable[[ResponseStream], None],
        on_end: Callable[[], None] | None = None,
        is_engine_ready: Callable[[], bool],
        work_of: Callable[[str], Work | None] = lambda _request_id: None,
    ) -> None:
        """``on_end`` is of requests that end by themselves, ``work_of`` of those that have not."""
        self.requests = requests  # by choice index
        self.cause: RoseInferError | None = None  # what ended the response, if not the engine
        self.failed_with: Exception | None = None  # the error that its body ended with
        self.first_sent_at: float | None = None  # in ``time.perf_counter()``
        self._on_close = on_close
        self._on_end = on_end
        self._is_engine_ready = is_engine_ready
        self._work_of = work_of
        self._ends: list[ChoiceEnd | None] = [None] * len(requests)
        self._num_unfinished = len(requests)
        self._num_output_tokens = [0] * len(requests)
        self._outputs: list[ChoiceOutput] = []
        self._merged: dict[int, StepOutput] = {}  # those after BUFFERED_OUTPUTS
        self._fault: StepOutput | None = None
        self._relay: Relay | None = None
        self._waiting: asyncio.Future[None] | None = None  # set while the reader waits
        self._scope: anyio.CancelScope | None = None

    def __len__(self) -> int:
        """Number of choices."""
        return len(self.requests)

    @property
    def is_finished(self) -> bool:
        """Whether the reader has received the last output of every choice."""
        return self._num_unfinished == 0

    @property
    def is_behind(self) -> bool:
        """Whether too much waits for the reader."""
        if not self._merged:
            return False
        merged = self._merged.values()
        return sum(len(output.text) + len(output.thinking) for output in merged) > MAX_UNREAD

    @property
    def num_output_tokens(self) -> int:
        """Tokens of all choices that the engine has reported."""
        return sum(self._num_output_tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort the unfinished requests, and drop what refers back to their owners. Idempotent."""
        self._ends = [*self.ends()]  # before the engine forgets its work
        self._on_close(self)  # nothing is pushed from now on
        self._relay = self._on_end = None
        self.cause = None  # once raised, it has its frames

    def ended(self, index: int, output: StepOutput) -> None:
        """A choice has ended by itself or with an error: this is its last output."""
        self._ends[index] = ChoiceEnd(output.finish_reason, output.stop_reason, output.work)
        if self._on_end is not None:
            self._on_end()

    def ends(self) -> list[ChoiceEnd]:
        """The end of each choice; of one that has not ended, the engine's work so far."""
        return [
            end or ChoiceEnd(work=self._work_of(request.request_id))
            for request, end in zip(self.requests, self._ends, strict=True)
        ]

    def bind(self, scope: anyio.CancelScope) -> None:
        """Set the scope that ``cancel`` cancels. It contains the whole sending."""
        self._scope = scope

    def cancel(self) -> None:
        """Cancel the response, even if it is blocked on a client that does not read."""
        if self._scope is not None:
            self._scope.cancel()

    def relay_with(self, relay: Relay) -> None:
        """Let ``relay`` take what comes while the reader waits: a task switch costs too much."""
        self._relay = relay

    def push(self, index: int, output: StepOutput) -> None:
        """Add an output, or merge it with its choice's if many wait. ``flush`` must follow."""
        if self._fault is not None:
            return
        self._num_output_tokens[index] = max(
            output.num_output_tokens, self._num_output_tokens[index]
        )
        if len(self._outputs) < BUFFERED_OUTPUTS and not self._merged:
            self._outputs.append((index, output))
            return
        earlier = self._merged.get(index)
        self._merged[index] = output if earlier is None else merge(earlier, output)

    def flush(self) -> None:
        """Hand what was pushed to the relay or wake the reader, if it waits."""
        if self._waiting is None or self._waiting.done():
            return
        if self._relay is not None and self._fault is None:
            outputs = self.take()
            if self._relay(outputs):
                return
            self._outputs = outputs
            self._num_unfinished += sum(output.is_last for _, output in outputs)
        self._waiting.set_result(None)

    def fail(self, message: str) -> None:
        """End the response with an error, in place of the outputs that wait for the reader."""
        self._fault = StepOutput(request_id=self.requests[0].request_id, error=message)
        self._outputs, self._merged = [], {}
        self.nudge()

    def nudge(self) -> None:
        """Wake the reader if it waits. ``receive`` then returns, possibly without outputs."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> list[ChoiceOutput]:
        """Wait for outputs or a nudge, and take all outputs. One wait covers those of a step."""
        if not self._outputs and self._fault is None:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self.take()

    def take(self) -> list[ChoiceOutput]:
        """Take all available outputs, in order for each choice."""
        if self._fault is not None:
            self._num_unfinished = 0
            return [(0, self._fault)]
        outputs, self._outputs = self._outputs, []
        if self._merged:
            outputs += self._merged.items()
            self._merged = {}
        for _, output in outputs:
            self._num_unfinished -= output.is_last
        return outputs

    def failure(self, output: StepOutput) -> RoseInferError:
        """The exception of an output's error. Clients may retry what is no fault of theirs."""
        assert output.error is not None
        if self.cause is not None:
            return self.cause
        if output.is_invalid:
            return InvalidRequest(output.error)
        if output.is_retryable or not self._is_engine_ready():
            return Unavailable(output.error)
        return GenerationFailed(output.error)
