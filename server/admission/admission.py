"""Admission: the budgets of all requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from server.admission.budget import Budget
from server.admission.pools import Pacing
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


class Admission:
    """The budgets that tickets take from. Event loop only.

    Choices and tokens run or wait; ``body_bytes`` are not yet decoded. ``memory`` is the bytes of
    decoded bodies, until their answers are sent, and of whole answers.
    """

    def __init__(
        self,
        *,
        choices: int,
        body_bytes: int,
        memory: int,
        prompt_tokens: int,
        output_tokens: int,
        compilations: int,
        rates: Rates | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures seconds."""
        self.rates = RateLimiter(rates or Rates(), clock=clock)
        self.pacing = Pacing()
        self.num_tickets = 0
        """Requests between their headers and the last byte of their answer."""
        self.choices = _budget("choices", choices, clock)
        self.body_bytes = _budget("body_bytes", body_bytes, clock)
        self.memory = _budget("memory", memory, clock)
        self.prompt_tokens = _budget("prompt_tokens", prompt_tokens, clock)
        self.output_tokens = _budget("output_tokens", output_tokens, clock)
        self.compilations = _budget("compilations", compilations, clock)

    @property
    def num_refused(self) -> int:
        """Requests that were refused because a budget was used up."""
        return sum(self._refused_by_budget().values())

    @property
    def refusals(self) -> dict[str, int]:
        """Requests that were answered 429, by the budget or the rate that was used up."""
        return self._refused_by_budget() | self.rates.refusals

    def _refused_by_budget(self) -> dict[str, int]:
        return {name: getattr(self, name).num_refused for name in _TEXTS}


def _budget(name: str, limit: int, clock: Callable[[], float]) -> Budget:
    full, never, param = _TEXTS[name]
    return Budget(limit, full=full, never=never, param=param, clock=clock)
