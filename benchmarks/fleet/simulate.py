"""The event loop of the simulation: conversations, a policy and replicas on one clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from bench.figures import percentile
from benchmarks.fleet.machine import Machine
from benchmarks.fleet.policies import MakePolicy
from benchmarks.fleet.replica import Replica
from benchmarks.fleet.request import Conversation, Request


@dataclass(frozen=True, kw_only=True)
class Span:
    """Requests that arrive from ``warm_up`` to ``warm_up + measured`` seconds count.

    After that nothing arrives any more, and what is open runs to its end.
    """

    warm_up: float
    measured: float

    @property
    def end(self) -> float:
        return self.warm_up + self.measured


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A request is good if its first token came in time, and the others at this pace. Seconds."""

    ttft: float
    tpot: float

    def is_met(self, request: Request) -> bool:
        return request.ttft <= self.ttft and request.tpot <= self.tpot


@dataclass(kw_only=True)
class Outcome:
    """The requests that count, and what the replicas did."""

    requests: list[Request] = field(default_factory=list)
    num_events: int = 0
    busy: float = 0.0
    """The part of the time that replicas computed, up to the end of the last request."""

    seconds: float = 0.0
    """When the last request ended."""

    by_replica: list[int] = field(default_factory=list)
    """Requests that each replica got, also those of the warm-up."""

    @property
    def hit_rate(self) -> float:
        """The part of the prompts' tokens that was cached."""
        total = sum(request.num_prompt for request in self.requests)
        return sum(request.num_cached for request in self.requests) / max(1, total)

    def ttft(self, percent: float) -> float:
        return percentile([request.ttft for request in self.requests], percent)

    def tpot(self, percent: float) -> float:
        return percentile([request.tpot for request in self.requests], percent)

    def num_good(self, goal: Goal) -> int:
        return sum(map(goal.is_met, self.requests))


class Fleet:
    """Equal replicas behind one front."""

    def __init__(self, machine: Machine, make_policy: MakePolicy, num_replicas: int) -> None:
        times = machine.step_times()
        self.policy = make_policy(num_replicas)
        self.replicas = [Replica(machine, times) for _ in range(num_replicas)]
        self._overhead = machine.request_ms / 1e3
        self._events: list[tuple[float, int, int | Conversation]] = []
        self._num_events = 0
        self._due: list[float | None] = [None] * num_replicas
        self._outcome = Outcome(by_replica=[0] * num_replicas)

    def run(self, conversations: Iterable[tuple[float, Conversation]], span: Span) -> Outcome:
        """Simulate conversations that begin at these times, which rise.

        Call it once. The same arguments always give the same outcome.
        """
        outcome = self._outcome
        arriving = iter(conversations)
        coming = next(arriving, None)
        while True:
            while coming and (not self._events or coming[0] <= self._events[0][0]):
                if coming[0] >= span.end:
                    coming = None
                    break
                self._push(*coming)
                coming = next(arriving, None)
            if not self._events:
                break
            now, _, what = heappop(self._events)
            if not isinstance(what, int):
                if now < span.end:
                    self._ask(what, now)
            elif self._due[what] == now:
                self._due[what] = None
                outcome.num_events += 1
                self._advance(what, span)
        busy = sum(replica.busy_seconds for replica in self.replicas)
        outcome.busy = busy / max(outcome.seconds * len(self.replicas), 1e-9)
        return outcome

    def _push(self, at: float, what: int | Conversation) -> None:
        self._num_events += 1
        heappush(self._events, (at, self._num_events, what))

    def _ask(self, conversation: Conversation, now: float) -> None:
        """Send the next turn of a conversation, if there is one."""
        turn = conversation.next_turn()
        if turn is None:
            return
        outcome = self._outcome
        outcome.num_events += 1
        request = Request(conversation, *turn, arrival=now)
        chosen = self.policy.choose(conversation.key)
        request.replica = chosen
        self.policy.opened(chosen)
        outcome.by_replica[chosen] += 1
        self.replicas[chosen].arrive(request, now)
        self._watch(chosen)

    def _advance(self, number: int, span: Span) -> None:
        outcome = self._outcome
        for request in self.replicas[number].advance():
            self.policy.closed(number)
            request.first_token += self._overhead
            request.end += self._overhead
            outcome.seconds = max(outcome.seconds, request.end)
            if span.warm_up <= request.arrival:
                outcome.requests.append(request)
            following = request.conversation.then()
            if following:
                self._push(request.end + following[0], following[1])
        self._watch(number)

    def _watch(self, number: int) -> None:
        """Call ``advance`` of a replica when it is due. Earlier appointments become void."""
        due = self.replicas[number].due
        if due != self._due[number]:
            self._due[number] = due
            if due is not None:
                self._push(due, number)
