"""The engine without HTTP, under the same load: what the front end costs is the difference.

    python -m benchmarks.in_process DIR [flags of roseinfer serve]

Says ``{"ready": true}`` when the model is loaded. Then each line of its input is a job,
``{"scenario": NAME, "scale": 1.0, "seed": "...", "limit": 60}``, and answered with a line of
figures; it ends with its input. ``benchmarks/compare.py`` starts it. The event loop that takes the
outputs is the one that makes the load, and there is nothing between it and the core thread: no
socket, no JSON, no schema.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as the server sets it, before torch is imported

from bench.records import RequestRecord
from benchmarks.load import OnToken, run_scenario
from benchmarks.scenarios import scenarios
from core.build import LoadedEngine, load_engine
from core.contract.messages import Abort, Add, EngineRequest, StepOutput
from core.contract.params import SamplingParams
from core.thread import CoreThread, Died, Event, SteppingEngine
from server.process import SWITCH_INTERVAL
from server.settings import Settings, parse_settings


class Answer:
    """What has come of one request. Event loop only."""

    def __init__(self, on_token: OnToken | None) -> None:
        self.record = RequestRecord(submit=time.perf_counter())
        self.is_over = asyncio.get_running_loop().create_future()
        self._on_token = on_token

    def take(self, output: StepOutput) -> None:
        """Note what one step gave."""
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
            if not self.is_over.done():
                self.is_over.set_result(None)


class EngineClient:
    """Asks an engine in this process. Event loop only, but for what the core thread calls."""

    def __init__(self, settings: Settings) -> None:
        """Begin to load."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._is_loaded: asyncio.Future[LoadedEngine] = self._loop.create_future()
        self._answers: dict[str, Answer] = {}
        self._numbers = itertools.count()
        self._core = CoreThread(
            self._load,
            on_outputs=lambda outputs: self._post(self._deliver, outputs),
            on_event=lambda event: self._post(self._handle, event),
        )
        self._core.start()

    async def loaded(self) -> LoadedEngine:
        """Wait until it takes requests."""
        return await self._is_loaded

    async def run(
        self, prompt: str, max_tokens: int, on_token: OnToken | None = None
    ) -> RequestRecord:
        """Generate, as a greedy completion that ignores the end of text does."""
        answer = Answer(on_token)
        tokenizer = self._is_loaded.result().tokenizer
        request = EngineRequest(
            request_id=f"bench-{next(self._numbers)}",
            prompt_token_ids=tuple(tokenizer.encode(prompt, add_special_tokens=True)),
            params=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        )
        self._answers[request.request_id] = answer
        self._core.submit(Add(request))
        try:
            await answer.is_over
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
        self._post(self._is_loaded.set_result, loaded)
        return loaded.engine

    def _post(self, callback: Any, *arguments: Any) -> None:
        """Core thread."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    def _deliver(self, outputs: Sequence[StepOutput]) -> None:
        for output in outputs:
            answer = self._answers.get(output.request_id)
            if answer is not None:
                answer.take(output)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Died):
            raise SystemExit(event.message)


async def answer_jobs(settings: Settings) -> None:
    """Load, say so, and run what is asked for."""
    client = EngineClient(settings)
    max_model_len = (await client.loaded()).info.max_model_len
    gc.collect()
    gc.freeze()
    say({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        job = json.loads(line)
        scenario = scenarios(max_model_len, job["scale"])[job["scenario"]]
        say(await run_scenario(client, scenario, seed=job["seed"], limit=job["limit"]))
    client.close()


def say(what: dict[str, Any]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    asyncio.run(answer_jobs(parse_settings(["serve", *sys.argv[1:]])))


if __name__ == "__main__":
    main()
