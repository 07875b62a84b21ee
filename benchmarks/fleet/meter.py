"""Meter: times the steps of an engine, of the kinds that the simulation has."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator

from benchmarks.fleet.machine import Step
from core.assembly.build import LoadedEngine
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams

NUM_STEPS = 12
"""Steps of which the median is taken."""

NUM_PROMPTS = 3

MAX_TOKENS = 640
"""Tokens of an answer: enough that the first stream still runs when the last one has begun."""

SHORT, LONG, DEEP = 32, 2048, 4096
"""Tokens of short and long contexts, and how far inside a prompt its later tokens are."""


class Meter:
    """Times the steps of one engine."""

    def __init__(self, loaded: LoadedEngine, max_num_batched_tokens: int) -> None:
        self._engine = loaded.engine
        self._info = loaded.info
        self._most = min(max_num_batched_tokens, loaded.info.max_model_len - 2)
        self._rng = random.Random(0)

    def steps(self) -> Iterator[Step]:
        """All measured steps."""
        self._streams(1, SHORT)  # warm up
        for number in _powers(1, self._info.max_num_seqs):
            yield self._streams(number, SHORT)
        for number in (1, 2, 4):
            if self._has_room(number, LONG):
                yield self._streams(number, LONG)
        self._prompt(self._most, 0)  # warm up
        for number in _powers(16, self._most):
            yield self._prompt(number, 0)
        number = min(256, self._most)
        if self._has_room(1, DEEP + number):
            yield self._prompt(number, DEEP)

    def _has_room(self, num_streams: int, num_tokens: int) -> bool:
        num_tokens += MAX_TOKENS
        fits = num_streams * num_tokens <= self._info.num_kv_tokens
        return fits and num_tokens <= self._info.max_model_len

    def _streams(self, number: int, context: int) -> Step:
        """Steps of so many streams, once all of them have begun."""
        lengths = {str(i): 0 for i in range(number)}
        for name in lengths:
            self._add(name, self._draw(context), MAX_TOKENS)
        while not all(lengths.values()):
            self._step(lengths)
        seconds = []
        for _ in range(NUM_STEPS):
            begin = time.perf_counter()
            self._step(lengths)
            seconds.append(time.perf_counter() - begin)
        mean_context = context + statistics.mean(lengths.values()) - NUM_STEPS / 2
        for name in lengths:
            self._engine.abort(name)
        while self._engine.has_work:
            self._engine.step()
        ms = round(1e3 * statistics.median(seconds), 3)
        return Step(streams=number, context=round(mean_context, 1), ms=ms)

    def _step(self, lengths: dict[str, int]) -> None:
        for output in self._engine.step():
            assert not output.is_last, "a stream ended before the last one began"
            lengths[output.request_id] += len(output.token_ids)

    def _prompt(self, number: int, start: int) -> Step:
        """Tokens ``start`` to ``start + number - 1`` of a prompt; those before are cached."""
        seconds = []
        for _ in range(NUM_PROMPTS):
            prefix = self._draw(start)
            if prefix:
                self._compute(prefix)
            seconds.append(self._compute(prefix + self._draw(number)))
        return Step(prompt=number, start=start, ms=round(1e3 * statistics.median(seconds), 3))

    def _compute(self, prompt: tuple[int, ...]) -> float:
        begin = time.perf_counter()
        self._add("prompt", prompt, 1)
        while self._engine.has_work:
            self._engine.step()
        return time.perf_counter() - begin

    def _add(self, name: str, prompt: tuple[int, ...], max_tokens: int) -> None:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = EngineRequest(request_id=name, prompt_token_ids=prompt, params=params)
        self._engine.add(request)

    def _draw(self, number: int) -> tuple[int, ...]:
        return tuple(self._rng.randint(300, self._last_id) for _ in range(number))

    @property
    def _last_id(self) -> int:
        return self._info.num_token_ids - 1


def _powers(first: int, most: int) -> list[int]:
    """``first`` and its doubles up to ``most``, and ``most``."""
    found = [first]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return found if found[-1] >= most else [*found, most]
