"""Admission: the budgets of all requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from server.admission.budget import Budget
from server.admission.pacing import Pacing
from server.admission.rate_limit import RateLimiter
from server.settings.types import Rates

_TEXTS: dict[str, tuple[str, str, str | None]] = {
    "choices": (
        "Too many requests are waiting.",
        "This asks for {} generations at once; the server takes at most {}.",
        "n",
    ),
    "body_bytes": (
        "Too many bytes of requests are waiting.",
        "The body has {} bytes; the server takes at most {}.",
        None,
    ),
    "memory": (
        "Requests and their answers hold too much memory.",
        "The body may take {} bytes once it is decoded; the server takes at most {}.",
        None,
    ),
    "prompt_tokens": (
        "Too many prompt tokens are waiting.",
        "The prompts have {} tokens together; the server takes at most {}.",
        "prompt",
    ),
    "output_tokens": (
        "Too many tokens are waiting to be generated.",
        "This asks for up to {} tokens in all choices; the server takes at most {}.",
        "max_tokens",
    ),
    "compilations": (
        "Too many grammars are waiting to be compiled.",
        "This asks for {} grammars to be compiled; the server takes at most {}.",
        None,
    ),
}
"""Of each budget: the messages of its 429 and its 400, and the parameter that the latter names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """One number for each budget. Choices and tokens run or wait; bodies are not yet decoded.

    ``memory`` is the bytes of decoded bodies, until their answers are sent, and of whole answers.
    """

    choices: int
    body_bytes: int
    memory: int
    prompt_tokens: int
    output_tokens: int
    compilations: int


class Admission:
    """The budgets that tickets take from. Event loop only."""

    def __init__(
        self,
        limits: AdmissionLimits,
        rates: Rates | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures seconds."""
        self.rates = RateLimiter(rates or Rates(), clock=clock)
        self.pacing = Pacing()
        self.num_tickets = 0
        """Requests between their headers and the last byte of their answer."""
        made = {name: _budget(name, getattr(limits, name), clock) for name in _TEXTS}
        self.budgets = tuple(made.values())
        self.choices = made["choices"]
        self.body_bytes = made["body_bytes"]
        self.memory = made["memory"]
        self.prompt_tokens = made["prompt_tokens"]
        self.output_tokens = made["output_tokens"]
        self.compilations = made["compilations"]
        self._refused_by_budget = Counter(dict.fromkeys(made, 0))

    def refuse(self, budget: Budget) -> None:
        """Count a request that is refused because a budget is used up."""
        self._refused_by_budget[budget.name] += 1

    @property
    def num_refused(self) -> int:
        """Requests that were refused because a budget was used up."""
        return self._refused_by_budget.total()

    @property
    def refusals(self) -> dict[str, int]:
        """Requests that were answered 429, by the budget or the rate that was used up."""
        return {**self._refused_by_budget, **self.rates.refusals}


def _budget(name: str, limit: int, clock: Callable[[], float]) -> Budget:
    full, never, param = _TEXTS[name]
    return Budget(limit, name=name, full=full, never=never, param=param, clock=clock)
