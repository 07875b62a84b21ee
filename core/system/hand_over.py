"""HandOver: when other threads get the outputs of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Lender(Protocol):
    """Lends a core of those that compute to another thread of this process."""

    def lend(self) -> None:
        """Leave a core free in the next computation, until it is given back or some time is over.

        Core thread only.
        """

    def give_back(self) -> None:
        """Return the core. Any thread."""


class HandOver:
    """Keeps the outputs of a step until the next step computes.

    Their consumer then takes neither the GIL nor a core from the Python code that prepares the
    step, for which every core waits. Core thread only, except ``give_back``.
    """

    def __init__(self) -> None:
        self.may_wait = False
        """Whether every step calls ``release`` before it computes without the GIL."""
        self.lender: Lender | None = None
        self._waiting: tuple[Callable[[Any], None], Any] | None = None

    def keep(self, post: Callable[[Any], None], outputs: Any) -> None:
        """Pass ``outputs`` to ``post`` at the next ``release``. There must be none waiting."""
        assert self._waiting is None
        self._waiting = post, outputs

    def release(self) -> None:
        """Pass on what waits."""
        if self._waiting is not None:
            (post, outputs), self._waiting = self._waiting, None
            post(outputs)

    def lend(self) -> None:
        """Lend a core to the consumer, if cores are scarce."""
        if self.lender is not None:
            self.lender.lend()

    def give_back(self) -> None:
        """The consumer has no more to do. Any thread."""
        if self.lender is not None:
            self.lender.give_back()
