"""PacedEngine: an engine without a model, for measuring the CPU time of the front end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.front_end.counters import ThreadCounters
from core.assembly.build import LoadedEngine
from core.builtin_model import path as builtin_path
from core.contract.info import EngineInfo
from core.contract.messages import EngineRequest, EngineStats, StepOutput, Work
from core.engine.generation import Generation
from core.grammar.compiler import GrammarCompiler
from core.observe.step_timer import StepTimer
from core.sampling.result import SampledTokens, SequenceResult
from core.state.sequence import Sequence
from core.text.tokenizer import Tokenizer

MARGIN = 20
"""Steps at the start and the end of a run that do not count."""

TEXT = Path(__file__).parents[1] / "peers.md"
"""The text that the engine generates: prose, markup and code."""


class PacedEngine:
    """A SteppingEngine whose every step generates one token per stream.

    The first step waits for all streams. Prints the figures of a run as a line of JSON.
    """

    def __init__(self, tokenizer: Tokenizer, *, num_streams: int, interval: float) -> None:
        self._tokenizer = tokenizer
        self._ids = tokenizer.encode(TEXT.read_text("utf-8"), add_special_tokens=False)
        self._num_streams = num_streams
        self._interval = interval
        self._counters = ThreadCounters()
        self._live: dict[str, Generation] = {}
        self._num_steps = 0  # of this run
        self._next_step = 0.0
        self._text_cpu = 0.0
        self._first: dict[str, float] = {}
        self.timer = StepTimer()

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: EngineRequest) -> None:
        self._live[request.request_id] = Generation(Sequence(request, seed=0), self._tokenizer)

    def abort(self, request_id: str) -> None:
        self._live.pop(request_id, None)

    def prepare(self, *, is_idle: bool) -> bool:  # noqa: ARG002 - see SteppingEngine
        """There is nothing to prepare."""
        return False

    def fail_all(self, message: str) -> list[StepOutput]:
        live, self._live = self._live, {}
        return [StepOutput(request_id=request_id, error=message) for request_id in live]

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self._live), num_steps=self._num_steps)

    def work(self, request_id: str) -> Work | None:
        generation = self._live.get(request_id)
        return None if generation is None else generation.sequence.work()

    def step(self) -> list[StepOutput]:
        """Sleep until the next step is due, then generate one token per stream."""
        now = time.monotonic()
        if self._num_steps == 0 and len(self._live) < self._num_streams:
            time.sleep(1e-3)
            return []
        self._next_step = max(self._next_step + self._interval, now)
        time.sleep(self._next_step - now)
        outputs = self._advance()
        self._measure()
        return outputs

    def _advance(self) -> list[StepOutput]:
        start = time.thread_time()
        outputs = []
        for number, generation in enumerate(list(self._live.values())):
            # streams are at different places of the text
            token_id = self._ids[(self._num_steps + 97 * number) % len(self._ids)]
            generation.advance(
                SequenceResult(SampledTokens([token_id])),
                frozenset(),
                num_computed_tokens=generation.sequence.num_tokens,
            )
            output = generation.report()
            if output is not None:
                outputs.append(output)
                if output.is_last:
                    del self._live[output.request_id]
        self._text_cpu += time.thread_time() - start
        self._num_steps += 1
        return outputs

    def _measure(self) -> None:
        if self._num_steps == MARGIN:
            self._text_cpu = 0.0
            self._first = self._counters.read()
        if not self._live:
            self._num_steps = 0
            return
        left = min(
            generation.sequence.params.max_tokens - generation.sequence.num_output_tokens
            for generation in self._live.values()
        )
        if left == MARGIN:
            last = self._counters.read()
            used = {name: last[name] - self._first[name] for name in last}
            used["text_cpu"] = self._text_cpu
            print(json.dumps({"num_steps": self._num_steps - MARGIN, **used}), flush=True)


def load_paced(num_streams: int, interval: float) -> LoadedEngine:
    """``interval``: seconds between steps."""
    tokenizer = Tokenizer.load(str(builtin_path()))
    info = EngineInfo(
        max_model_len=1 << 20,
        max_num_seqs=num_streams,
        vocab_size=len(tokenizer),
        num_token_ids=len(tokenizer),
        num_kv_tokens=1 << 20,
        dtype="none",
        device="none",
    )
    compiler = GrammarCompiler(
        tokenizer.vocabulary, (tokenizer.eos_token_id or 0,), vocab_size=len(tokenizer)
    )
    engine: Any = PacedEngine(tokenizer, num_streams=num_streams, interval=interval)
    return LoadedEngine(engine, tokenizer, info, compiler)
