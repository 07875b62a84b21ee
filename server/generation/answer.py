"""answer: from a decoded request to the response that sends its answer.

One ``with`` around the whole sending ends it in every case: the last output, an error, a disconnect
(``server.admission.deadline`` cancels it, also while ``send`` blocks), and server shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio import to_thread
from litestar import MediaType, Response
from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import GenerationFailed
from core.contract.messages import StepOutput, merge
from server.bridge.stream import ChoiceOutput, ResponseStream
from server.generation.job import Job, effective_parameters
from server.generation.model import ServedModel
from server.generation.serving import AnyRequest, admitted
from server.http.ignored_fields import report_ignored
from server.net.body_writer import BodyWriter, body_writer
from server.observe.trace import Texts
from server.rendering.base import Renderer

logger = logging.getLogger("roseinfer.server")

R = TypeVar("R")
T = TypeVar("T")

HEAVY = 2000
"""Microseconds of rendering that the event loop does itself; more is done in a thread."""

WRITE_SIZE = 2**18
"""Bytes of a body in one write. The client's reading holds the next write back."""

_renderers = anyio.CapacityLimiter(2)
"""Heavy answers that are rendered at once."""


async def answer(
    request: AnyRequest,
    translate: Callable[[R, ServedModel], Job],
    data: R,
    *,
    num_generations: int = 1,
) -> Response[Any]:
    """Translate ``data`` in a worker thread, submit the job, return the response that sends it.

    ``num_generations`` is the number of choices of all prompts. Raises what ``admitted``, the
    ticket, ``translate``, the grammar compiler and ``EngineBridge.open`` raise. After this no 429
    is possible, and a 400 only for a fault that the engine finds in the request.
    """
    serving, ticket = admitted(request, getattr(data, "model", None))  # /generate names none
    ticket.chosen(num_generations)
    texts = Texts() if serving.settings.log_prompts else None
    turn = ticket.turn(getattr(data, "priority", None) or 0)  # Ollama's have none
    pool = serving.pools.of_size(ticket.num_body_bytes)
    job = await pool.run(turn, _translated, translate, data, serving.model, texts)
    trace = ticket.trace
    trace.id, trace.is_streamed, trace.texts = job.id, job.is_streamed, texts
    trace.num_prompt_tokens, trace.choices_per_prompt = job.num_prompt_tokens, job.num_choices
    if serving.model.info.pooling is None:
        trace.parameters = effective_parameters(job)
    ticket.translated(
        num_prompt_tokens=job.num_prompt_tokens, num_output_tokens=job.max_output_tokens
    )
    grammars, salt = job.new_grammars, job.salt(ticket.tenant)
    if not grammars.are_compiled(salt):
        with ticket.compiling():
            await serving.pools.grammars.run(ticket.turn(turn.priority), grammars.compile, salt)
    if serving.settings.strict_schemas:
        grammars.check_enforced()
    report_ignored(request.scope, [*job.ignored, *grammars.warnings])
    stream = serving.bridge.open(job.requests(ticket.tenant), on_end=ticket.choice_ended)
    ticket.attach(stream, partial(serving.bridge.fail, stream))
    trace.submitted(stream)
    if not job.is_streamed:
        return WholeAnswer(stream, job.renderer, texts=texts, on_rendered=ticket.rendered)
    interval = serving.settings.keep_alive_interval
    return StreamAnswer(stream, job.renderer, texts=texts, keep_alive_interval=interval)


async def answer_in_worker(
    request: AnyRequest, respond: Callable[[R, ServedModel], bytes], data: R
) -> Response[bytes]:
    """Answer with the JSON that ``respond`` makes in a worker thread, without the engine."""
    serving, ticket = admitted(request, getattr(data, "model", None))
    body = await serving.pools.tokens.run(ticket.turn(), respond, data, serving.model)
    ticket.rendered(len(body))
    return Response(body, media_type=MediaType.JSON)


def _translated(
    translate: Callable[[R, ServedModel], Job], request: R, model: ServedModel, texts: Texts | None
) -> Job:
    """Translate in a worker; with ``texts``, also keep the prompts as the model sees them."""
    job = translate(request, model)
    if texts is not None:
        texts.take_prompts(job.prompts, model.tokenizer)
    return job


class OwningAnswer(Response[None], ABC):
    """Base of responses whose body comes from the engine.

    ``texts`` keeps what was generated, for the record.
    """

    def __init__(self, stream: ResponseStream, renderer: Renderer, texts: Texts | None) -> None:
        super().__init__(None)
        self._stream = stream
        self._renderer = renderer
        self._texts = texts

    def to_asgi_response(self, **_kwargs: Any) -> ASGIApp:  # type: ignore[override]
        return self._run

    async def _run(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send while owning the stream. ``ResponseStream.cancel`` cancels the body."""
        with self._stream, anyio.CancelScope() as cancel_scope:
            self._stream.bind(cancel_scope)
            await self._send(scope, send)

    @abstractmethod
    async def _send(self, scope: Scope, send: Send) -> None:
        """Send the status and the body."""

    def _weight(self, outputs: Iterable[ChoiceOutput]) -> int:
        return sum([self._renderer.weight(index, output) for index, output in outputs])


class WholeAnswer(OwningAnswer):
    """One JSON object, sent when every choice has finished.

    ``on_rendered`` gets its size before it is sent. It must not raise: the work is done.
    """

    def __init__(
        self,
        stream: ResponseStream,
        renderer: Renderer,
        *,
        texts: Texts | None = None,
        on_rendered: Callable[[int], None] = lambda _size: None,
    ) -> None:
        super().__init__(stream, renderer, texts)
        self._on_rendered = on_rendered

    async def _send(self, _scope: Scope, send: Send) -> None:
        outputs = await self._collect()
        if self._texts is not None:
            for index, output in enumerate(outputs):
                self._texts.take(index, output)
        weight = self._weight(enumerate(outputs))
        body = await _rendered(self._renderer.whole, outputs, weight)
        self._on_rendered(len(body))
        await _start(send, MediaType.JSON, {"content-length": str(len(body))})
        await _send_body(send, body, is_last=True)

    async def _collect(self) -> list[StepOutput]:
        outputs: dict[int, StepOutput] = {}
        while not self._stream.is_finished:
            for index, output in await self._stream.receive():
                if output.error is not None:
                    raise self._stream.failure(output)
                earlier = outputs.get(index)
                outputs[index] = output if earlier is None else merge(earlier, output)
        return [outputs[index] for index in range(len(self._stream))]


class StreamAnswer(OwningAnswer):
    """A body that is sent while it is generated.

    The status is sent with the first output, so a request that fails before gets a 500. After
    ``keep_alive_interval`` seconds without output the status and the renderer's ``keep_alive``
    bytes are sent, and those bytes again after every further interval. 0: never.
    """

    def __init__(
        self,
        stream: ResponseStream,
        renderer: Renderer,
        *,
        texts: Texts | None = None,
        keep_alive_interval: float = 0.0,
    ) -> None:
        super().__init__(stream, renderer, texts)
        self._keep_alive_interval = keep_alive_interval if renderer.keep_alive else 0.0
        self._is_over = False
        self._is_cut = False
        self._num_writes = self._num_writes_seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writer: BodyWriter | None = None

    async def _send(self, scope: Scope, send: Send) -> None:
        if self._keep_alive_interval:
            self._look_later()
        try:
            outputs = await self._stream.receive()
            if outputs and outputs[0][1].error is not None:
                raise self._stream.failure(outputs[0][1])
            first = await self._first(outputs)
            headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
            await _start(send, self._renderer.media_type, headers)
            await self._write(send, first)
            if outputs:
                self._stream.first_sent_at = time.perf_counter()
            self._writer = body_writer(scope)
            if self._writer is not None:
                self._stream.relay_with(self._relay)
            while not self._is_over:
                await self._write(send, await self._render(await self._stream.receive()))
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _relay(self, outputs: list[ChoiceOutput]) -> bool:
        """Write outputs at once. Ends, errors, much text and slow clients need the task."""
        assert self._writer is not None
        if not self._writer.is_ready or self._stream.is_finished:
            return False
        for _, output in outputs:
            if output.error is not None:
                return False
        if self._weight(outputs) > HEAVY:
            return False
        data = self._feed(outputs)
        if data:
            self._num_writes += 1
            self._writer.write(data)
        return True

    async def _first(self, outputs: list[ChoiceOutput]) -> bytes:
        """The beginning and the first outputs. Without any, only ``begin`` may be heavy."""

        def render(outputs: list[ChoiceOutput]) -> bytes:
            return self._renderer.begin() + self._feed(outputs)

        return await _rendered(render, outputs, self._weight(outputs) if outputs else HEAVY + 1)

    async def _render(self, outputs: list[ChoiceOutput]) -> bytes:
        """More of the body. If rendering fails, the stream ends with an error."""
        try:
            return await _rendered(self._feed, outputs, self._weight(outputs))
        except Exception:  # the status has been sent: nothing else can say so
            logger.exception("cannot render a response")
            return self._end_with("The server failed on this request.")

    def _feed(self, outputs: Sequence[ChoiceOutput]) -> bytes:
        """All available outputs, for one write. Without any: the keep-alive bytes."""
        if not outputs:
            return self._renderer.keep_alive
        pieces: list[bytes] = []
        for index, output in outputs:
            if self._texts is not None:
                self._texts.take(index, output)
            pieces.append(self._renderer.feed(index, output))
            if output.error is not None:
                cause = self._stream.failure(output)
                return b"".join([*pieces, self._end_with(output.error, cause)])
        if self._stream.is_finished:
            self._is_over = True
            pieces.append(self._renderer.end())
        return b"".join(pieces)

    def _end_with(self, message: str, cause: Exception | None = None) -> bytes:
        """The last bytes of a stream that ends with an error."""
        self._stream.failed_with = cause or GenerationFailed(message)
        error = self._renderer.error(message, cause)
        self._is_over, self._is_cut = True, error is None
        return error or b""

    async def _write(self, send: Send, data: bytes) -> None:
        """One write to the socket. The last one ends the body, unless the body is to be cut."""
        is_last = self._is_over and not self._is_cut
        if data or is_last:
            self._num_writes += 1
            await _send_body(send, data, is_last=is_last)

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._keep_alive_interval, self._look)

    def _look(self) -> None:
        """Wake the sending task if nothing was written: only it may send."""
        if self._num_writes_seen == self._num_writes:
            self._stream.nudge()
        self._num_writes_seen = self._num_writes
        self._look_later()


async def _rendered(render: Callable[[list[T]], bytes], outputs: list[T], weight: int) -> bytes:
    """Render heavy outputs in a thread, which also frees them: that takes long too."""
    if weight <= HEAVY:
        return render(outputs)

    def run() -> bytes:
        data = render(outputs)
        while outputs:
            outputs.pop()  # one at a time, so that other threads run in between
        return data

    return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=_renderers)


async def _send_body(send: Send, data: bytes, *, is_last: bool) -> None:
    """Send bytes in writes of at most WRITE_SIZE, between which others run.

    ``is_last``: they end the body.
    """
    for start in range(0, max(len(data), 1), WRITE_SIZE):
        piece = data if len(data) <= WRITE_SIZE else data[start : start + WRITE_SIZE]
        more = not is_last or start + WRITE_SIZE < len(data)
        if start:
            await anyio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def _start(send: Send, media_type: str, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", media_type.encode()), *encoded],
        }
    )
