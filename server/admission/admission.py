"""Admission: the budgets of all requests."""

from __future__ import annotations

import time
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
        self.num_refused = 0
        """Requests that were refused because a budget was used up."""
        self.choices = Budget(
            limits.choices,
            full="Too many requests are waiting.",
            never="This asks for {} generations at once; the server takes at most {}.",
            param="n",
            clock=clock,
        )
        self.body_bytes = Budget(
            limits.body_bytes,
            full="Too many bytes of requests are waiting.",
            never="The body has {} bytes; the server takes at most {}.",
            clock=clock,
        )
        self.prompt_tokens = Budget(
            limits.prompt_tokens,
            full="Too many prompt tokens are waiting.",
            never="The prompts have {} tokens together; the server takes at most {}.",
            param="prompt",
            clock=clock,
        )
        self.output_tokens = Budget(
            limits.output_tokens,
            full="Too many tokens are waiting to be generated.",
            never="This asks for up to {} tokens in all choices; the server takes at most {}.",
            param="max_tokens",
            clock=clock,
        )
        self.compilations = Budget(
            limits.compilations,
            full="Too many grammars are waiting to be compiled.",
            never="This asks for {} grammars to be compiled; the server takes at most {}.",
            clock=clock,
        )
