"""Runs simulations and makes lines of figures of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from benchmarks.fleet.conversations import Load
from benchmarks.fleet.machine import Machine
from benchmarks.fleet.policies import policy_of
from benchmarks.fleet.simulate import Fleet, Goal, Outcome, Span


@dataclass(frozen=True, kw_only=True)
class Case:
    """``sessions`` is how many conversations begin in a minute for each replica."""

    num_replicas: int
    policy: str
    sessions: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """The figures of a case. Times in seconds; rates per second, of all replicas."""

    case: Case
    hit_rate: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    requests: float
    goodput: float
    busy: float
    most: float
    """Requests that the busiest replica got, as a multiple of the mean."""

    num_events: int
    cpu_seconds: float

    def cells(self) -> list[str]:
        case = self.case
        per_replica = 1 / case.num_replicas
        return [
            f"{case.num_replicas:,}",
            case.policy,
            f"{case.sessions:g}",
            f"{self.hit_rate:.1%}",
            f"{self.ttft_p50:.2f}",
            f"{self.ttft_p99:.2f}",
            f"{1e3 * self.tpot_p50:.1f}",
            f"{self.requests * per_replica:.3f}",
            f"{self.goodput * per_replica:.3f}",
            f"{self.busy:.0%}",
            f"{self.most:.2f}",
        ]


HEAD = (
    "replicas",
    "policy",
    "conversations/min each",
    "cached",
    "TTFT p50, s",
    "TTFT p99, s",
    "TPOT p50, ms",
    "requests/s each",
    "good/s each",
    "busy",
    "most/mean",
)


def run_case(case: Case, machine: Machine, load: Load, span: Span, goal: Goal, seed: int) -> Line:
    """Simulate one case."""
    rate = case.sessions / 60 * case.num_replicas
    load = replace(load, rate=rate)
    begin = time.process_time()
    fleet = Fleet(machine, policy_of(case.policy), case.num_replicas)
    outcome = fleet.run(load.conversations(seed), span)
    return _line(case, outcome, span, goal, time.process_time() - begin)


def _line(case: Case, outcome: Outcome, span: Span, goal: Goal, cpu_seconds: float) -> Line:
    return Line(
        case=case,
        hit_rate=outcome.hit_rate,
        ttft_p50=outcome.ttft(50),
        ttft_p99=outcome.ttft(99),
        tpot_p50=outcome.tpot(50),
        requests=len(outcome.requests) / span.measured,
        goodput=outcome.num_good(goal) / span.measured,
        busy=outcome.busy,
        most=max(outcome.by_replica) * case.num_replicas / max(1, sum(outcome.by_replica)),
        num_events=outcome.num_events,
        cpu_seconds=cpu_seconds,
    )


def cases_of(
    replicas: Iterable[int], policies: Iterable[str], sessions: Iterable[float]
) -> Iterator[Case]:
    """Every combination, policies next to one another."""
    policies = list(policies)
    for number in replicas:
        for rate in sessions:
            for policy in policies:
                yield Case(num_replicas=number, policy=policy, sessions=rate)


def table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
