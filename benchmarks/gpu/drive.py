"""Runs a load on an engine in this thread, without an event loop or a core thread."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from benchmarks.load import Sent, figures, make_prompts
from benchmarks.scenarios import Scenario
from core.assembly.build import LoadedEngine
from core.contract.messages import EngineRequest, StepOutput
from core.contract.params import SamplingParams


class Drive:
    """One run of a scenario; the figures are those of ``benchmarks.load``."""

    def __init__(self, loaded: LoadedEngine, scenario: Scenario, *, seed: str) -> None:
        encode = loaded.tokenizer.encode
        prompts, long_prompt = make_prompts(scenario, seed)
        self._engine = loaded.engine
        self._scenario = scenario
        self._waiting = deque(encode(prompt, add_special_tokens=True) for prompt in prompts)
        self._long_ids = encode(long_prompt, add_special_tokens=True)
        self._sent: dict[str, Sent] = {}
        self._num_live = 0
        self._long: Sent | None = None

    def run(self) -> dict[str, Any]:
        start = time.perf_counter()
        while self._waiting or self._engine.has_work:
            self._add(time.perf_counter() - start)
            if self._engine.has_work:
                outputs = self._engine.step()
                now = time.perf_counter()
                for output in outputs:
                    self._take(output, now)
            else:
                time.sleep(1e-4)
        sent = [sent for sent in self._sent.values() if sent is not self._long]
        return figures(sent, self._long, is_cut=False, now=time.perf_counter())

    def _add(self, elapsed: float) -> None:
        """Add the requests that are due."""
        scenario = self._scenario
        while self._waiting and self._is_due(elapsed):
            self._send(self._waiting.popleft(), scenario.max_tokens)
        is_long_due = scenario.kind == "interfere" and self._long is None and not self._waiting
        if is_long_due and all(
            len(sent.times) >= scenario.start_after for sent in self._sent.values()
        ):
            self._long = self._send(self._long_ids, scenario.long_max_tokens)

    def _is_due(self, elapsed: float) -> bool:
        scenario = self._scenario
        if scenario.kind == "open":
            return elapsed >= len(self._sent) * scenario.interval
        return self._num_live < scenario.concurrency

    def _send(self, ids: list[int], max_tokens: int) -> Sent:
        name = str(len(self._sent))
        sent = self._sent[name] = Sent(submit=time.perf_counter())
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self._num_live += 1
        self._engine.add(EngineRequest(request_id=name, prompt_token_ids=tuple(ids), params=params))
        return sent

    def _take(self, output: StepOutput, now: float) -> None:
        sent = self._sent[output.request_id]
        record = sent.record
        record.token_times += [now] * len(output.token_ids)
        if output.is_last:
            self._num_live -= 1
            sent.is_over = True
            record.end = now
            record.error = output.error
            record.finish_reason = output.finish_reason
            record.completion_tokens = output.num_output_tokens
            record.prompt_tokens = output.num_prompt_tokens
            record.cached_tokens = output.num_cached_tokens


def drive(loaded: LoadedEngine, scenario: Scenario, *, seed: str) -> dict[str, Any]:
    """Run a scenario once; returns its figures."""
    return Drive(loaded, scenario, seed=seed).run()
