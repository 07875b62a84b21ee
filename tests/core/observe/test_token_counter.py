"""The times between tokens: exact sums, counts and buckets, whatever happens to a sequence."""

from __future__ import annotations

import random

import pytest

from core.observe.histogram import GAP_SECONDS, Histogram
from tests.support.scripted import Rig


class Clock:
    """Time that only passes between steps, so that all tokens of a step have one time."""

    def __init__(self, rig: Rig) -> None:
        self.now = 10**9
        rig.engine.timer.clock = lambda: self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * 10**9)


class Oracle:
    """Counts the gaps of each request from its outputs. An output of two tokens has a gap of 0."""

    def __init__(self) -> None:
        self.gaps = Histogram(GAP_SECONDS)
        self.num_tokens = 0
        self._last: dict[str, int] = {}

    def see(self, request_id: str, num_tokens: int, now: int) -> None:
        self.num_tokens += num_tokens
        for _ in range(num_tokens):
            if request_id in self._last:
                self.gaps.observe((now - self._last[request_id]) / 1e9)
            self._last[request_id] = now


def check(rig: Rig, oracle: Oracle) -> None:
    counted, expected = rig.engine.timer.histograms.inter_token.read(), oracle.gaps.read()
    assert counted.counts == expected.counts
    assert counted.total == pytest.approx(expected.total)
    assert rig.engine.stats().num_output_tokens == oracle.num_tokens


def run(rig: Rig, clock: Clock, rng: random.Random, oracle: Oracle, *, num_steps: int) -> None:
    for _ in range(num_steps):
        clock.advance(rng.choice([0.002, 0.02, 0.3]))
        for output in rig.outputs():
            oracle.see(output.request_id, len(output.token_ids), clock.now)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_sequences_of_every_step_have_the_gaps_of_the_steps(async_scheduling):
    rig, rng, oracle = Rig(async_scheduling=async_scheduling), random.Random(0), Oracle()
    clock = Clock(rig)
    for name in "abc":
        rig.add(name, max_tokens=20, ignore_eos=True)
        run(rig, clock, rng, oracle, num_steps=4)
    while rig.engine.has_work:
        run(rig, clock, rng, oracle, num_steps=1)
    check(rig, oracle)
    assert oracle.gaps.read().num_values == 3 * 19


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_gaps_are_exact_whatever_happens(seed, async_scheduling):
    """Preemptions, late masks, failed steps that are repeated in halves, aborts."""
    rng = random.Random(seed)
    rig = Rig(num_blocks=rng.randrange(10, 16), async_scheduling=async_scheduling)
    clock, oracle = Clock(rig), Oracle()
    num_added = 0
    while num_added < 25 or rig.engine.has_work:
        if num_added < 25 and rng.random() < 0.5:
            name = str(num_added)
            num_added += 1
            if rng.random() < 0.3:
                rig.runner.late_rows[name] = 3
                rig.runner.bound_ids.add(name)
            prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
            rig.add(name, prompt=prompt, max_tokens=rng.randrange(1, 20), ignore_eos=True)
        if rng.random() < 0.2 and rig.scheduler.num_running > 1:
            rig.scheduler._preempt(rig.scheduler._running[-1])
        if rng.random() < 0.05:
            rig.runner.failures.append(RuntimeError("now and then"))
        if rng.random() < 0.05:
            rig.engine.abort(str(rng.randrange(num_added + 1)))
        run(rig, clock, rng, oracle, num_steps=1)
    check(rig, oracle)
    assert rig.engine.stats().num_preemptions > 0


def test_prompts_count_when_they_are_computed():
    rig = Rig(max_num_batched_tokens=8, max_num_seqs=2)
    rig.add("long", prompt=range(20), max_tokens=5)
    rig.step()
    assert rig.engine.stats().num_prompt_tokens == 0
    rig.step()
    rig.step()
    assert rig.engine.stats().num_prompt_tokens == 20
    rig.run()
    rig.add("again", prompt=range(20), max_tokens=1)
    rig.run()
    stats = rig.engine.stats()
    assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (40, 16)


def test_a_prompt_that_only_gets_log_probabilities_counts():
    rig = Rig()
    rig.add("scored", prompt=range(10), max_tokens=0, prompt_logprobs=0)
    rig.run()
    stats = rig.engine.stats()
    assert (stats.num_prompt_tokens, stats.num_output_tokens) == (10, 0)


def test_dropped_requests_are_counted_once():
    rig = Rig(max_num_seqs=1)
    for name in "abc":
        rig.add(name, max_tokens=3, ignore_eos=True)
    rig.step()
    rig.engine.abort("a")
    rig.engine.abort("b")
    rig.engine.abort("b")
    rig.engine.abort("unknown")
    rig.run()
    rig.engine.abort("c")
    stats = rig.engine.stats()
    assert stats.num_aborts == 2
    assert stats.num_prompt_tokens == 6  # that of b was never computed
