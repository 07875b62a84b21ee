"""EngineClient: the engine in this process behind the interface of the HTTP client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.records import RequestRecord
from benchmarks.load import OnToken
from benchmarks.scenarios import GREEDY
from core.assembly.build import LoadedEngine, load_engine
from core.contract.messages import Abort, Add, EngineRequest, StepOutput
from core.contract.params import SamplingParams
from core.engine.thread import CoreThread, Died, Event, SteppingEngine
from server.settings.settings import Settings


class Answer:
    """The answer to one request so far. Event loop only."""

    def __init__(self, on_token: OnToken | None) -> None:
        self.record = RequestRecord(submit=time.perf_counter())
        self.ended = asyncio.get_running_loop().create_future()
        self._on_token = on_token

    def add(self, output: StepOutput) -> None:
        """Record the output of one step."""
        record = self.record
        if output.text:
            record.token_times.append(time.perf_counter())
            if self._on_token is not None:
                self._on_token(record)
        if output.is_last:
            record.end = time.perf_counter()
            record.error = output.error
            record.finish_reason = output.finish_reason
            record.completion_tokens = output.num_output_tokens
            record.prompt_tokens = output.num_prompt_tokens
            record.cached_tokens = output.num_cached_tokens
            if not self.ended.done():
                self.ended.set_result(None)


class EngineClient:
    """Submits prompts to an engine on its core thread. Event loop only, unless noted otherwise.

    Nothing is between the event loop and the core thread: no socket, no JSON, no schema.
    """

    def __init__(self, settings: Settings) -> None:
        """Start loading."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[LoadedEngine] = self._loop.create_future()
        self._answers: dict[str, Answer] = {}
        self._numbers = itertools.count()
        self._core = CoreThread(
            self._load,
            on_outputs=lambda outputs: self._post(self._deliver, outputs),
            on_event=lambda event: self._post(self._handle, event),
        )
        self._core.start()
        self.sampling: Mapping[str, float] = GREEDY
        """The sampling fields of the next requests."""

    async def loaded(self) -> LoadedEngine:
        """Wait until the engine is loaded."""
        return await self._loaded

    async def run(
        self, prompt: str, max_tokens: int, on_token: OnToken | None = None
    ) -> RequestRecord:
        """Generate ``max_tokens`` tokens."""
        answer = Answer(on_token)
        tokenizer = self._loaded.result().tokenizer
        sampling: dict[str, Any] = dict(self.sampling)
        request = EngineRequest(
            request_id=f"bench-{next(self._numbers)}",
            prompt_token_ids=tuple(tokenizer.encode(prompt, add_special_tokens=True)),
            params=SamplingParams(max_tokens=max_tokens, ignore_eos=True, **sampling),
        )
        self._answers[request.request_id] = answer
        self._core.submit(Add(request))
        try:
            await answer.ended
        finally:
            if self._answers.pop(request.request_id, None) and not answer.record.end:
                self._core.submit(Abort(request.request_id))
        return answer.record

    def close(self) -> None:
        """Stop the core thread."""
        self._core.close(10.0)

    def _load(self) -> SteppingEngine:
        """Core thread."""
        loaded = load_engine(self._settings.model, self._settings.engine)
        self._post(self._loaded.set_result, loaded)
        return loaded.engine

    def _post(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Core thread."""
        self._loop.call_soon_threadsafe(callback, argument)

    def _deliver(self, outputs: Sequence[StepOutput]) -> None:
        for output in outputs:
            answer = self._answers.get(output.request_id)
            if answer is not None:
                answer.add(output)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Died):
            raise SystemExit(event.message)
