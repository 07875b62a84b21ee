"""Admission: the budgets of all requests. Ticket: what one request holds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self

from core.contract.errors import QueueFull, RoseInferError
from server.admission.budget import Budget, RateLimiter
from server.bridge.stream import ResponseStream
from server.observe.trace import Trace
from server.settings.settings import Settings
from server.settings.types import Rates
from server.tenants.tenant import Tenant
from server.workers.pools import Pacing, Turn

HELD_BODIES = 4  # bodies of the largest size that may be held at once
DECODED_BODIES = 16  # times that size: what decoded bodies and whole answers may take together
MIN_MEMORY = 512 * 2**20  # bytes that they may take at least
MAX_COMPILATIONS = 32  # requests whose grammars are compiled or wait for that


class Admission:
    """The budgets that tickets take from. Event loop only.

    Choices and tokens run or wait; ``body_bytes`` are not yet decoded. ``memory`` is the bytes of
    decoded bodies, until their answers are sent, and of whole answers.
    """

    def __init__(self, settings: Settings) -> None:
        self.rates = RateLimiter(settings.rate_limit or Rates())
        self.pacing = Pacing()
        self.num_tickets = 0  # requests between their headers and the last byte of their answer
        self.choices = Budget(
            settings.engine.max_num_seqs + settings.max_queued_requests,
            full="Too many requests are waiting.",
            never="This asks for {} generations at once",
            param="n",
        )
        self.body_bytes = Budget(
            HELD_BODIES * settings.max_body_size, full="Too many bytes of requests are waiting."
        )
        self.memory = Budget(
            max(DECODED_BODIES * settings.max_body_size, MIN_MEMORY),
            full="Requests and their answers hold too much memory.",
            never="The body may take {} bytes once it is decoded",
        )
        self.prompt_tokens = Budget(
            settings.max_queued_prompt_tokens,
            full="Too many prompt tokens are waiting.",
            never="The prompts have {} tokens together",
            param="prompt",
        )
        self.output_tokens = Budget(
            settings.max_queued_output_tokens,
            full="Too many tokens are waiting to be generated.",
            never="This asks for up to {} tokens in all choices",
            param="max_tokens",
        )
        self.compilations = Budget(
            MAX_COMPILATIONS, full="Too many grammars are waiting to be compiled."
        )
        parts = vars(self).items()
        self._budgets = {name: part for name, part in parts if isinstance(part, Budget)}

    @property
    def num_refused(self) -> int:
        """Requests that were refused because a budget was used up."""
        return sum(budget.num_refused for budget in self._budgets.values())

    @property
    def refusals(self) -> dict[str, int]:
        """Requests that were answered 429, by the budget or the rate that was used up."""
        by_budget = {name: budget.num_refused for name, budget in self._budgets.items()}
        return by_budget | self.rates.refusals


class Ticket:
    """Holds parts of the budgets. Leaving it (``with``) returns them all. Event loop only.

    It grows as more is known of the request: the headers, the decoded body, the tokenized prompts.
    Each of these steps may raise QueueFull, or InvalidRequest for what never fits.
    """

    def __init__(
        self,
        admission: Admission,
        tenant: Tenant,
        *,
        declared_bytes: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Admit a request by its headers. Raises QueueFull.

        Without ``declared_bytes``, the Content-Length, bytes count as they arrive. ``seconds`` are
        those until the deadline.
        """
        self.tenant = tenant
        self.seconds = seconds
        self.trace = Trace()
        self.num_body_bytes = 0  # that have arrived, and of stored items that the body refers to
        self.admission = admission
        self._held: dict[Budget, int] = {}
        self._is_declared = declared_bytes is not None
        self._stream: ResponseStream | None = None
        self._num_unfinished = 0
        self._fail: Callable[[RoseInferError], None] | None = None
        try:
            self._take(admission.choices, 1)
            self._take(admission.body_bytes, declared_bytes or 0)
        except QueueFull:
            self._release()
            raise
        admission.num_tickets += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            if self._stream is not None:
                self._stream.close()
                self.admission.rates.charge(self.tenant.name, self._stream.num_output_tokens)
        finally:
            self.admission.num_tickets -= 1
            self._release()

    def body_arrived(self, num_bytes: int) -> None:
        """Count bytes of the body."""
        self.num_body_bytes += num_bytes
        if not self._is_declared:
            self._take(self.admission.body_bytes, num_bytes)

    def body_grew(self, num_bytes: int) -> None:
        """Count bytes of the body that its Content-Length does not."""
        self.num_body_bytes += num_bytes
        self._take(self.admission.body_bytes, num_bytes)

    def turn(self, priority: int = 0) -> Turn:
        """The place of the request in a worker's line, in which it waits from now on."""
        self.trace.enter("waiting")
        begins = partial(self.trace.enter, "worker")
        return Turn(self.tenant.name, self.num_body_bytes, priority, begins)

    def decoded(self, num_bytes: int) -> None:
        """Exchange the body for its objects, which take so many bytes at most.

        They count until the end: what refers to a part of them, such as an answer that repeats
        the request, keeps it so long.
        """
        self.admission.memory.check_possible(num_bytes)
        self._take(self.admission.memory, num_bytes)
        self._give_back_all(self.admission.body_bytes)

    def stored_found(self, num_bytes: int) -> None:
        """Count stored items that the body refers to, as if it contained them."""
        self.num_body_bytes += num_bytes
        self._take(self.admission.memory, num_bytes)

    def chosen(self, num_choices: int) -> None:
        """Take the places of all choices. One was taken at the headers."""
        self.admission.choices.check_possible(num_choices)
        self._take(self.admission.choices, num_choices - 1)

    def translated(self, *, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """Take the prompts' tokens, and the most that may be generated."""
        self.admission.prompt_tokens.check_possible(num_prompt_tokens)
        self._take(self.admission.prompt_tokens, num_prompt_tokens)
        self.admission.output_tokens.check_possible(num_output_tokens)
        self._take(self.admission.output_tokens, num_output_tokens)
        self.admission.rates.charge(self.tenant.name, num_prompt_tokens)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Hold a place among the requests whose grammars are compiled."""
        self._take(self.admission.compilations, 1)
        try:
            yield
        finally:
            self._give_back_all(self.admission.compilations)

    def attach(self, stream: ResponseStream, fail: Callable[[RoseInferError], None]) -> None:
        """Own the stream from now on. ``fail`` ends it with an error."""
        self._stream, self._fail = stream, fail
        self._num_unfinished = len(stream)

    def rendered(self, num_bytes: int) -> None:
        """Count the bytes of a whole answer. Never refuses; ``decoded`` refuses later requests."""
        memory = self.admission.memory
        memory.add(self.tenant.name, num_bytes)
        self._held[memory] = self._held.get(memory, 0) + num_bytes

    def choice_ended(self) -> None:
        """Return the place of one choice; with the last one of the stream, the tokens of all.

        The answer keeps one place until it is sent. Texts to embed or to score hold no places but
        this one. A client that reads slowly holds no tokens that nobody computes any more.
        """
        self._num_unfinished -= 1
        if self._held[self.admission.choices] > 1:
            self._held[self.admission.choices] -= 1
            self.admission.choices.give_back(self.tenant.name, 1)
        if not self._num_unfinished:
            self._give_back_all(self.admission.prompt_tokens)
            self._give_back_all(self.admission.output_tokens)

    def fail(self, error: RoseInferError) -> bool:
        """End the answer with an error. False if the engine has not got the request yet."""
        if self._fail is None:
            return False
        self._fail(error)
        return True

    def _take(self, budget: Budget, amount: int) -> None:
        if amount:
            budget.take(self.tenant.name, amount)
            self._held[budget] = self._held.get(budget, 0) + amount

    def _give_back_all(self, budget: Budget) -> None:
        budget.give_back(self.tenant.name, self._held.pop(budget, 0))

    def _release(self) -> None:
        for budget in list(self._held):
            self._give_back_all(budget)
