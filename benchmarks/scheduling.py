"""The scheduler under pressure: scheduler, block bookkeeping and a fake clock, without a model.

    python -m benchmarks.scheduling

Each line of the output is one load. A step of ``n`` tokens takes ``Machine.step_seconds +
n * Machine.token_seconds``. Every request samples exactly ``num_output_tokens``; the scheduler
knows only ``max_tokens``. Prompts of these loads share nothing. A token is extra if it was computed
before.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from benchmarks.scenarios import S2
from core.assembly.scheduler import build_scheduler
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.run.limits import Limits
from core.scheduler import Scheduler
from core.state.sequence import Sequence

BLOCK_SIZE = 16

_SHARED = -1
"""A token that is no index."""


@dataclass(frozen=True, slots=True)
class Request:
    """Arrives at ``arrival`` seconds, or when the machine is next free after that."""

    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    arrival: float = 0.0
    num_shared_tokens: int = 0
    """First tokens of the prompt that all requests have in common."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Room for ``num_kv_tokens``, and the time of a step."""

    num_kv_tokens: int
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    prefill_chunk_size: int | None = 128
    max_step_seconds: float | None = None
    step_seconds: float = 0.0114
    token_seconds: float = 0.0014
    keys_per_row: float = math.inf

    @property
    def limits(self) -> Limits:
        return Limits(
            max_num_seqs=self.max_num_seqs,
            max_model_len=self.num_kv_tokens,
            max_num_batched_tokens=self.max_num_batched_tokens,
            prefill_chunk_size=self.prefill_chunk_size,
            max_step_seconds=self.max_step_seconds,
            block_size=BLOCK_SIZE,
            keys_per_row=self.keys_per_row,
        )


@dataclass(slots=True)
class Outcome:
    """Counts of one simulation. Times are in seconds of the fake clock."""

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_needed_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    seconds: float = 0.0
    longest_gap: float = 0.0
    """Longest step in which a sequence computed its last pending token only."""

    first_step: dict[int, int] = field(default_factory=dict)
    """From the index of a request to the number of steps before its first one."""

    first_token: dict[int, float] = field(default_factory=dict)
    """From the index of a request to the seconds from its arrival to its first token."""

    @property
    def extra(self) -> float:
        """Extra tokens per needed token."""
        return self.num_computed_tokens / self.num_needed_tokens - 1

    @property
    def tokens_per_second(self) -> float:
        """Sampled tokens per second."""
        return self.num_output_tokens / self.seconds


def simulate(machine: Machine, requests: Iterable[Request]) -> Outcome:
    """Run all requests to their end."""
    scheduler, kv = build_scheduler(
        machine.limits, machine.num_kv_tokens // BLOCK_SIZE, enable_prefix_caching=True
    )
    outcome = Outcome()
    arriving = deque(sorted(enumerate(requests), key=lambda item: item[1].arrival))
    live: dict[Sequence, tuple[int, Request]] = {}
    while live or arriving:
        while arriving and (arriving[0][1].arrival <= outcome.seconds or not live):
            index, request = arriving.popleft()
            sequence = _sequence(index, request)
            live[sequence] = index, request
            scheduler.add(sequence)
        _step(scheduler, machine, live, outcome)
    outcome.num_preemptions = scheduler.num_preemptions
    assert kv.num_free_blocks == kv.num_blocks
    return outcome


def _step(
    scheduler: Scheduler,
    machine: Machine,
    live: dict[Sequence, tuple[int, Request]],
    outcome: Outcome,
) -> None:
    plan = scheduler.schedule()
    assert plan.scheduled, "nothing can be scheduled"
    seconds = machine.step_seconds + plan.num_tokens * machine.token_seconds
    end = outcome.seconds + seconds
    for item in plan.scheduled:
        sequence = item.sequence
        index, request = live[sequence]
        outcome.first_step.setdefault(index, outcome.num_steps)
        sequence.num_computed_tokens += item.num_tokens
        if not item.samples:
            continue
        sequence.token_ids.append(index)
        outcome.first_token.setdefault(index, end - request.arrival)
        if sequence.num_output_tokens == request.num_output_tokens:
            scheduler.finish(sequence)
            del live[sequence]
            outcome.num_needed_tokens += sequence.num_tokens - 1
            outcome.num_output_tokens += sequence.num_output_tokens
    outcome.num_steps += 1
    outcome.num_computed_tokens += plan.num_tokens
    outcome.seconds = end
    if any(item.num_tokens == 1 for item in plan.scheduled):
        outcome.longest_gap = max(outcome.longest_gap, seconds)
    num_pairs = sum(item.num_pairs for item in plan.scheduled if item.num_tokens > 1)
    scheduler.observe(plan.num_tokens, len(plan.scheduled), seconds, num_pairs)


def _sequence(index: int, request: Request) -> Sequence:
    """Beyond the shared tokens, every token is the index."""
    params = SamplingParams(max_tokens=request.max_tokens)
    num_shared = request.num_shared_tokens
    prompt = (_SHARED,) * num_shared + (index,) * (request.num_prompt_tokens - num_shared)
    return Sequence(
        EngineRequest(request_id=str(index), prompt_token_ids=prompt, params=params), seed=0
    )


def burst(num_requests: int, max_tokens: int, shares: tuple[float, float]) -> list[Request]:
    """Requests at once, whose outputs are a uniformly drawn share of ``max_tokens``."""
    rng = random.Random(0)
    return [
        Request(
            rng.randrange(16, 128), max(1, round(max_tokens * rng.uniform(*shares))), max_tokens
        )
        for _ in range(num_requests)
    ]


def under_pressure(requests: list[Request], part: float) -> Machine:
    """A cache with room for this part of all tokens of 64 such requests."""
    mean = sum(r.num_prompt_tokens + r.num_output_tokens for r in requests) / len(requests)
    return Machine(num_kv_tokens=int(64 * mean * part))


def blocked_head() -> tuple[Machine, list[Request]]:
    """Two long streams, a prompt that does not fit beside them, and 38 small requests."""
    streams = [Request(2000, 2000, 2000)] * 2
    return Machine(num_kv_tokens=9000), [
        *streams,
        Request(5000, 16, 500),
        *[Request(32, 32, 32)] * 38,
    ]


def long_prompt(machine: Machine) -> tuple[Machine, list[Request]]:
    """S5 of benchmarks/scenarios.py: a prompt of 900 tokens arrives among 8 streams.

    Each of them has 16 tokens by then.
    """
    arrival = 16 * machine.step_seconds + (8 * 32 + 15 * 8) * machine.token_seconds
    return machine, [*[Request(32, 256, 256)] * 8, Request(900, 8, 8, arrival=arrival)]


def many_prompts(machine: Machine) -> tuple[Machine, list[Request]]:
    """S2 of benchmarks/scenarios.py: 64 short prompts, 20 ms apart."""
    rng = random.Random(0)
    lengths = [rng.randint(*S2.prompt_words) for _ in range(S2.num_requests)]
    return machine, [
        Request(length, S2.max_tokens, S2.max_tokens, arrival=S2.interval * i)
        for i, length in enumerate(lengths)
    ]


PRESSURE = {
    f"{num_requests} requests, {shares[0]:.0%} to {shares[1]:.0%} of {max_tokens}, "
    f"room for {part:.0%} of 64": (num_requests, max_tokens, shares, part)
    for num_requests in (64, 256)
    for max_tokens, shares in ((512, (1.0, 1.0)), (512, (0.1, 0.9)), (2048, (0.2, 1.0)))
    for part in (0.25, 0.5)
}

GPT2 = Machine(num_kv_tokens=100_000)
QWEN3 = Machine(num_kv_tokens=100_000, step_seconds=0.038, token_seconds=0.0085)
"""The clocks of S1 and S5 of GPT-2 and Qwen3-0.6B in RESULTS.md: a step of one token, and the worst
gap."""

QWEN3_AMX = Machine(num_kv_tokens=100_000, step_seconds=0.03, token_seconds=0.0013)
"""About the clock of Qwen3-0.6B on two cores with AMX: steps of 64 streams take 113 ms."""


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.scheduling", description=__doc__.partition("\n")[0]
    ).parse_args()
    for name, (num_requests, max_tokens, shares, part) in PRESSURE.items():
        requests = burst(num_requests, max_tokens, shares)
        outcome = simulate(under_pressure(requests, part), requests)
        print(
            f"{name}: {outcome.extra:.1%} extra tokens, {outcome.num_preemptions} preemptions, "
            f"{outcome.tokens_per_second:.0f} tokens/s"
        )
    outcome = simulate(*blocked_head())
    small = [outcome.first_step[index] for index in range(3, 41)]
    print(
        f"a head that does not fit: it waits {outcome.first_step[2]} steps, "
        f"38 small requests at most {max(small)}"
    )
    for name, machine in (("GPT-2", GPT2), ("Qwen3-0.6B", QWEN3)):
        bounded = replace(machine, max_step_seconds=0.1, prefill_chunk_size=None)
        for limit, limited in (("chunks of 128 tokens", machine), ("steps of 100 ms", bounded)):
            outcome = simulate(*long_prompt(limited))
            print(
                f"{name}, {limit}: worst gap {outcome.longest_gap * 1000:.0f} ms, "
                f"{outcome.seconds:.1f} s in all"
            )

    for name, machine in (("GPT-2", GPT2), ("Qwen3-0.6B", QWEN3), ("the same, AMX", QWEN3_AMX)):
        bounded = replace(machine, max_step_seconds=0.1, prefill_chunk_size=None)
        outcome = simulate(*many_prompts(bounded))
        waits = sorted(outcome.first_token.values())
        print(
            f"{name}, 64 short prompts: first tokens after {waits[32] * 1000:.0f} ms (median) and "
            f"{waits[62] * 1000:.0f} ms (the second longest), worst gap "
            f"{outcome.longest_gap * 1000:.0f} ms, {outcome.tokens_per_second:.0f} tokens/s"
        )


if __name__ == "__main__":
    main()
