"""Random conversations of agents: when they begin, and the tokens of each turn.

Bursts of conversations begin at random times (a Poisson process): an agent starts others, or a job
starts many. All conversations of a ``kind`` begin with the same system prompt and tools. Every turn
adds tokens (a tool's result, a person's words) to all that was said before, so the next prompt is
the last one, its answer and these. Between an answer and the next turn an agent's tool runs, or a
person thinks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count


@dataclass(frozen=True, kw_only=True)
class Load:
    """Parameters of a random load.

    Lengths are medians in tokens of log-normal distributions with this ``spread``; ``turns`` and
    ``burst`` are means of geometric ones; times are means of exponential ones, in seconds.

    ``rate`` is how many conversations begin in a second, of all replicas together. ``alike`` is
    the part of bursts whose conversations all have the same first message, and so the same ``key``.
    """

    rate: float
    burst: float = 8.0
    burst_seconds: float = 2.0
    alike: float = 0.0
    kinds: int = 16
    system: int = 1500
    first: int = 300
    added: int = 150
    answer: int = 120
    spread: float = 0.8
    turns: float = 10.0
    tool_seconds: float = 3.0
    person_seconds: float = 30.0
    persons: float = 0.2
    """The part of turns that a person begins."""

    max_model_len: int = 32_768

    def conversations(self, seed: int) -> Iterator[tuple[float, AgentConversation]]:
        """Conversations and when they begin, in order of time and without an end.

        The same seed gives the same conversations, whatever serves them.
        """
        rng = random.Random(seed)
        now = 0.0
        numbers = count()
        coming: list[tuple[float, int, AgentConversation]] = []
        while True:
            now += rng.expovariate(self.rate / self.burst)
            while coming and coming[0][0] <= now:
                begin, _, conversation = heappop(coming)
                yield begin, conversation
            kind = rng.randrange(self.kinds)
            is_alike = self.alike > 0 and rng.random() < self.alike
            common = rng.getrandbits(64) if is_alike else None
            for _ in range(_geometric(rng, self.burst)):
                begin = now + rng.expovariate(1 / self.burst_seconds)
                seed = rng.getrandbits(64)
                key = seed if common is None else common
                conversation = AgentConversation(self, kind, key, seed)
                heappush(coming, (begin, next(numbers), conversation))


class AgentConversation:
    """A ``Conversation``, whose turns are drawn from a random generator of its own.

    So they do not depend on when it is served, nor on other conversations.
    """

    __slots__ = ("_history", "_load", "_rng", "_turns_left", "key", "kind", "num_shared")

    def __init__(self, load: Load, kind: int, key: int, seed: int) -> None:
        self._load = load
        self._rng = random.Random(seed)
        self._history = load.system
        self.kind = kind
        self.key = key
        self.num_shared = load.system
        self._turns_left = _geometric(self._rng, load.turns)

    def next_turn(self) -> tuple[int, int] | None:
        load = self._load
        is_first = self._history == load.system
        added = self._length(load.first if is_first else load.added)
        answer = self._length(load.answer)
        num_prompt = self._history + added
        if not self._turns_left or num_prompt + answer > load.max_model_len:
            return None
        self._turns_left -= 1
        self._history = num_prompt + answer
        return num_prompt, answer

    def then(self) -> tuple[float, AgentConversation] | None:
        load = self._load
        if not self._turns_left:
            return None
        is_person = self._rng.random() < load.persons
        mean = load.person_seconds if is_person else load.tool_seconds
        return self._rng.expovariate(1 / mean), self

    def _length(self, median: int) -> int:
        return max(1, round(self._rng.lognormvariate(math.log(median), self._load.spread)))


def _geometric(rng: random.Random, mean: float) -> int:
    """1, 2, ... with this mean."""
    if mean <= 1:
        return 1
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))
