"""Seats: which choices of responses with many of them the engine gets, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence

from core.contract.messages import EngineRequest

SPARE_SHARE = 8
"""One of so many sequences is left to other responses."""


def seats_beside_first(max_num_seqs: int) -> int:
    """Seats for further choices, so that one response takes at most all but a spare share."""
    return max(max_num_seqs - max(max_num_seqs // SPARE_SHARE, 1) - 1, 0)


class Seats:
    """Gives the engine the first choice of every response at once, and further ones by seats.

    The further choices of all responses share the seats in turns, so that neither the engine's
    waiting line nor its batch fills up with the choices of one response. Event loop only.
    """

    def __init__(self, num_seats: int, submit: Callable[[EngineRequest], None]) -> None:
        self._num_seats = num_seats
        self._submit = submit
        self._num_taken = 0
        self._pending: dict[Hashable, deque[EngineRequest]] = {}
        """Choices without a seat, by response, in the order of their turns."""
        self._running: dict[Hashable, int] = {}
        """Choices that the engine has, for responses with more than one."""

    def enter(self, response: Hashable, requests: Sequence[EngineRequest]) -> None:
        """Submit what may be submitted."""
        self._submit(requests[0])
        if len(requests) == 1:
            return
        self._running[response] = 1
        self._pending[response] = deque(requests[1:])
        self._fill()

    def end(self, response: Hashable) -> None:
        """A choice of the response has ended."""
        if response not in self._running:
            return
        self._move(response, -1)
        pending = self._pending.get(response)
        if pending and not self._running[response]:
            self._next_of(response, pending)  # its first choice needs no seat
        self._fill()

    def leave(self, response: Hashable) -> None:
        """Submit nothing more of the response and return its seats. Idempotent."""
        self._pending.pop(response, None)
        if response in self._running:
            self._move(response, -self._running[response])
            del self._running[response]
            self._fill()

    def clear(self) -> None:
        """Submit nothing more."""
        self._pending.clear()

    def _fill(self) -> None:
        while self._pending and self._num_taken < self._num_seats:
            response = next(iter(self._pending))
            pending = self._pending.pop(response)
            if pending:
                self._pending[response] = pending  # to the end of the line
                self._next_of(response, pending)

    def _next_of(self, response: Hashable, pending: deque[EngineRequest]) -> None:
        self._move(response, 1)
        self._submit(pending.popleft())

    def _move(self, response: Hashable, change: int) -> None:
        """Change the number of running choices. All but one take a seat each."""
        before = self._running[response]
        self._running[response] = before + change
        self._num_taken += max(before + change - 1, 0) - max(before - 1, 0)
