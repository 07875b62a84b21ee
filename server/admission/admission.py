"""Admission: the budgets of all requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from server.admission.budget import Budget
from server.admission.limits import Limits
from server.admission.rate_limit import RateLimiter
from server.admission.rates import Rates


class Admission:
    """The budgets that tickets take from. Event loop only."""

    def __init__(
        self,
        limits: Limits,
        rates: Rates | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures seconds."""
        self.rates = RateLimiter(rates or Rates(), clock=clock)
        self.num_tickets = 0
        """Requests between their headers and the last byte of their answer."""
        self.choices = Budget(
            limits.choices,
            name="choices",
            full="Too many requests are waiting.",
            never="This asks for {} generations at once; the server takes at most {}.",
            param="n",
            clock=clock,
        )
        self.body_bytes = Budget(
            limits.body_bytes,
            name="body_bytes",
            full="Too many bytes of requests are waiting.",
            never="The body has {} bytes; the server takes at most {}.",
            clock=clock,
        )
        self.memory = Budget(
            limits.memory,
            name="memory",
            full="Requests and their answers hold too much memory.",
            never="The body may take {} bytes once it is decoded; the server takes at most {}.",
            clock=clock,
        )
        self.prompt_tokens = Budget(
            limits.prompt_tokens,
            name="prompt_tokens",
            full="Too many prompt tokens are waiting.",
            never="The prompts have {} tokens together; the server takes at most {}.",
            param="prompt",
            clock=clock,
        )
        self.output_tokens = Budget(
            limits.output_tokens,
            name="output_tokens",
            full="Too many tokens are waiting to be generated.",
            never="This asks for up to {} tokens in all choices; the server takes at most {}.",
            param="max_tokens",
            clock=clock,
        )
        self.compilations = Budget(
            limits.compilations,
            name="compilations",
            full="Too many grammars are waiting to be compiled.",
            never="This asks for {} grammars to be compiled; the server takes at most {}.",
            clock=clock,
        )
        self._refused_by_budget = Counter({budget.name: 0 for budget in self.budgets})

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """All of them."""
        return (
            self.choices,
            self.body_bytes,
            self.memory,
            self.prompt_tokens,
            self.output_tokens,
            self.compilations,
        )

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
