"""Runs one scenario against one client and returns a flat dict of figures.

A run that exceeds its time limit is cut: its requests are cancelled and its figures cover the time
until then. Tokens of a request without a usage record are counted by its pieces of text. A request
without a first token counts as if the token came at the cut. So the rate of a cut run is about
right, and its times are too low. ``is_cut`` marks such a run. The request that others follow has
figures and a mark of its own: ``first_``.

A load of one stream pauses between two requests, if the caller wants to do something there. Pauses
count neither in the time limit nor in the figures.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.figures import percentile
from bench.records import RequestTimes
from bench.words import random_prompt
from benchmarks.scenarios import Scenario

OnToken = Callable[[RequestTimes], None]

Pause = Callable[[], Awaitable[None]]
"""What is done between two requests of one stream."""


async def no_pause() -> None:
    """Do nothing between two requests."""


class Client(Protocol):
    """Answers prompts: a server over HTTP, or an engine in this process."""

    async def run(
        self, prompt: str, max_tokens: int, on_token: OnToken | None = None
    ) -> RequestTimes:
        """Generate exactly ``max_tokens`` tokens. The record holds any error."""


@dataclass(kw_only=True)
class Sent:
    """The progress of one request. Times are ``time.perf_counter()`` seconds."""

    submit: float
    record: RequestTimes = field(default_factory=RequestTimes)
    is_over: bool = False

    @property
    def times(self) -> list[float]:
        """Arrival times of the pieces of text."""
        return self.record.token_times

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far; an estimate until the request has ended."""
        return self.record.completion_tokens if self.is_over else len(self.times)


@dataclass
class Load:
    """The requests of one run."""

    client: Client
    scenario: Scenario
    pause: Pause
    sent: list[Sent] = field(default_factory=list)
    long: Sent | None = None
    first: Sent | None = None

    async def run(self, prompts: Sequence[str], long_prompt: str) -> None:
        """Send all requests and wait for their answers."""
        match self.scenario.kind:
            case "closed":
                await self._closed(prompts)
            case "open":
                await self._open(prompts)
            case "interfere":
                await self._interfere(prompts, long_prompt)
            case "follow":
                await self._follow_first(prompts)

    async def _ask(
        self, prompt: str, max_tokens: int, on_token: Callable[[], None] = lambda: None
    ) -> None:
        await self._follow(self._send(), prompt, max_tokens, on_token)

    def _send(self) -> Sent:
        sent = Sent(submit=time.perf_counter())
        self.sent.append(sent)
        return sent

    async def _follow(
        self, sent: Sent, prompt: str, max_tokens: int, on_token: Callable[[], None] = lambda: None
    ) -> None:
        def seen(record: RequestTimes) -> None:
            sent.record = record
            on_token()

        sent.record = await self.client.run(prompt, max_tokens, seen)
        sent.is_over = True

    async def _closed(self, prompts: Sequence[str]) -> None:
        left = iter(prompts)

        async def work() -> None:
            for prompt in left:
                if self.scenario.concurrency == 1 and self.sent:
                    await self.pause()
                await self._ask(prompt, self.scenario.max_tokens)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.scenario.concurrency):
                group.create_task(work())

    async def _open(self, prompts: Sequence[str]) -> None:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for i, prompt in enumerate(prompts):
                await asyncio.sleep(start + i * self.scenario.interval - time.perf_counter())
                group.create_task(self._ask(prompt, self.scenario.max_tokens))

    async def _interfere(self, prompts: Sequence[str], long_prompt: str) -> None:
        scenario = self.scenario
        are_streaming = asyncio.Event()

        def on_token() -> None:
            if all(len(sent.times) >= scenario.start_after for sent in self.sent):
                are_streaming.set()

        async with asyncio.TaskGroup() as group:
            streams = [self._send() for _ in prompts]
            tasks = [
                group.create_task(self._follow(sent, prompt, scenario.max_tokens, on_token))
                for sent, prompt in zip(streams, prompts, strict=True)
            ]
            waiting = group.create_task(are_streaming.wait())
            await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self.long = Sent(submit=time.perf_counter())
            await self._follow(self.long, long_prompt, scenario.long_max_tokens)

    async def _follow_first(self, prompts: Sequence[str]) -> None:
        max_tokens = self.scenario.max_tokens
        self.first = Sent(submit=time.perf_counter())
        await self._follow(self.first, prompts[0], max_tokens)
        async with asyncio.TaskGroup() as group:
            for prompt in prompts[1:]:
                group.create_task(self._ask(prompt, max_tokens))


async def run_scenario(
    client: Client, scenario: Scenario, *, seed: str, limit: float, pause: Pause = no_pause
) -> dict[str, Any]:
    """Run a scenario once, for at most ``limit`` seconds. The seed determines the prompts."""
    prompts, long_prompt = make_prompts(scenario, seed)
    timer = asyncio.timeout(limit)
    paused = 0.0

    async def stop_the_clock() -> None:
        nonlocal paused
        if timer.expired():
            await asyncio.Event().wait()  # this turn of the loop cancels all requests
        clock = asyncio.get_running_loop().time
        start, end = clock(), timer.when()
        assert end is not None
        timer.reschedule(None)
        await pause()
        took = clock() - start
        timer.reschedule(end + took)
        paused += took

    load = Load(client, scenario, stop_the_clock)
    is_cut = False
    try:
        async with timer:
            await load.run(prompts, long_prompt)
    except TimeoutError:
        is_cut = True
    return figures(
        load.sent,
        load.long,
        first=load.first,
        is_cut=is_cut,
        now=time.perf_counter(),
        paused=paused,
    )


def make_prompts(scenario: Scenario, seed: str) -> tuple[list[str], str]:
    """The prompts of a run, and the long prompt of an interfering load."""
    rng = random.Random(f"{seed} {scenario.name}")
    prefix = random_prompt(rng, scenario.prefix_words)
    prompts = []
    for _ in range(scenario.num_requests):
        if not scenario.shares_prefix:
            prefix = random_prompt(rng, scenario.prefix_words)
        prompts.append(prefix + random_prompt(rng, rng.randint(*scenario.prompt_words)))
    return prompts, random_prompt(rng, scenario.long_words)


def figures(
    sent: Sequence[Sent],
    long: Sent | None,
    *,
    first: Sent | None = None,
    is_cut: bool,
    now: float,
    paused: float = 0.0,
) -> dict[str, Any]:
    """The figures of a run. Times are in milliseconds; a figure without values is NaN.

    ``sent`` are the streams, without the long prompt and without the request that they follow.
    """
    others = [s for s in (long, first) if s is not None]
    errors = [s.record.error for s in [*sent, *others] if s.record.error]
    good = [s for s in sent if s.record.error is None]
    start = min((s.submit for s in sent), default=now)
    end = now if is_cut else max((s.record.end for s in sent), default=now)
    seconds = end - start - paused
    num_tokens = sum(s.num_tokens for s in good)
    ttft = [1e3 * ((s.times[0] if s.times else now) - s.submit) for s in good]
    tpot = _tpot(good)
    gaps = [1e3 * gap for s in good for gap in s.record.gaps]
    found: dict[str, Any] = {
        "num_sent": len(sent),
        "num_ended": sum(s.is_over for s in good),
        "num_errors": len(errors),
        "first_error": errors[0] if errors else None,
        "num_short": sum(s.record.finish_reason not in {"length", None} for s in good),
        "is_cut": is_cut,
        "is_estimated": any(s.record.estimated for s in good),
        "wall_s": seconds,
        "paused_s": paused,
        "tpot_each_ms": tpot if paused else [],
        "num_tokens": num_tokens,
        "num_pieces": sum(len(s.times) for s in good),
        "num_prompt_tokens": sum(s.record.prompt_tokens for s in good),
        "num_cached_tokens": sum(s.record.cached_tokens or 0 for s in good),
        "tok_s": num_tokens / seconds if sent else math.nan,
    }
    for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", gaps)):
        for percent in (50, 99, 100):
            key = "max" if percent == 100 else f"p{percent}"
            found[f"{name}_{key}_ms"] = percentile(values, percent)
    if long is not None:
        found |= _interference(good, long, now)
    if first is not None:
        found |= {
            "first_ttft_ms": 1e3 * ((first.times[0] if first.times else now) - first.submit),
            "first_tpot_ms": percentile(_tpot([first]), 50),
            "first_is_cut": not first.is_over,
        }
    return found


def _tpot(sent: Sequence[Sent]) -> list[float]:
    return [
        1e3 * (s.times[-1] - s.times[0]) / (s.num_tokens - 1)
        for s in sent
        if len(s.times) > 1 and s.num_tokens > 1
    ]


def _interference(sent: Sequence[Sent], long: Sent, now: float) -> dict[str, Any]:
    """The TTFT of the long prompt, and the streams' gaps between tokens during and before it."""
    begin, end = long.submit, long.times[0] if long.times else now
    quiet, during = [], []
    all_stream = max((s.times[0] for s in sent if s.times), default=now)
    for s in sent:
        for a, b in zip(s.times, s.times[1:], strict=False):
            if b > begin and a < end:
                during.append(1e3 * (b - a))
            elif all_stream <= a and b <= begin:
                quiet.append(1e3 * (b - a))
    return {
        "long_ttft_ms": 1e3 * (end - begin),
        "gap_quiet_p50_ms": percentile(quiet, 50),
        "gap_p50_ms": percentile(during, 50),
        "gap_max_ms": percentile(during, 100),
    }
