"""The loads of benchmarks/scenarios.py for the simulation of one replica."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.fleet.machine import Machine
from benchmarks.fleet.policies import RoundRobin
from benchmarks.fleet.request import Conversation, Request
from benchmarks.fleet.simulate import Fleet, Outcome, Span
from benchmarks.scenarios import Scenario

_FOREVER = Span(warm_up=0.0, measured=float("inf"))


@dataclass(eq=False)
class Prompt:
    """A ``Conversation`` of one turn. Its lengths are in tokens.

    At its end the next one of ``following`` is sent at once. Prompts of a closed load share that
    iterator, so as many are open all the time.
    """

    num_prompt: int
    num_output: int
    num_shared: int = 0
    kind: int = 0
    key: int = 0
    following: Iterator[Prompt] = field(default_factory=lambda: iter(()))

    def next_turn(self) -> tuple[int, int] | None:
        return self.num_prompt, self.num_output

    def then(self) -> tuple[float, Conversation] | None:
        prompt = next(self.following, None)
        return None if prompt is None else (0.0, prompt)


def simulate_scenario(machine: Machine, scenario: Scenario) -> tuple[Outcome, Request | None]:
    """The outcome, and the long request of an interfering load, or the one that others follow."""
    prompts = _prompts(scenario)
    match scenario.kind:
        case "open":
            return _run(machine, [(scenario.interval * i, p) for i, p in enumerate(prompts)]), None
        case "closed":
            following = iter(prompts[scenario.concurrency :])
            for prompt in prompts:
                prompt.following = following
            return _run(machine, [(0.0, p) for p in prompts[: scenario.concurrency]]), None
        case "follow":
            first, *others = prompts
            begin = _run(machine, [(0.0, first)]).requests[0].end
            first = _prompts(scenario)[0]
            outcome = _run(machine, [(0.0, first), *((begin, p) for p in others)])
            return outcome, _taken_out(outcome, first)
        case "interfere":
            alone = _run(machine, [(0.0, prompt) for prompt in prompts])
            num_tokens = scenario.start_after - 1
            begin = max(r.first_token + num_tokens * r.tpot for r in alone.requests)
            long = Prompt(scenario.long_words, scenario.long_max_tokens, kind=len(prompts))
            outcome = _run(machine, [*((0.0, p) for p in _prompts(scenario)), (begin, long)])
            return outcome, _taken_out(outcome, long)


def _taken_out(outcome: Outcome, prompt: Prompt) -> Request:
    found = next(r for r in outcome.requests if r.conversation is prompt)
    outcome.requests.remove(found)
    return found


def _run(machine: Machine, prompts: Iterable[tuple[float, Prompt]]) -> Outcome:
    return Fleet(machine, RoundRobin, 1).run(prompts, _FOREVER)


def _prompts(scenario: Scenario) -> list[Prompt]:
    rng = random.Random(0)
    prefix = scenario.prefix_words
    return [
        Prompt(
            prefix + rng.randint(*scenario.prompt_words),
            scenario.max_tokens,
            num_shared=prefix if scenario.shares_prefix else 0,
            kind=0 if scenario.shares_prefix else i,
        )
        for i in range(scenario.num_requests)
    ]
