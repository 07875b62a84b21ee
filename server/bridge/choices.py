"""ChoiceShare: which choices of responses with many of them the engine gets, and when."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from core.contract.messages import EngineRequest

SPARE_SHARE = 8
"""One of so many sequences is left to other responses."""


def further_choices(max_num_seqs: int) -> int:
    """Most further choices in the engine, so that one response leaves others a spare share."""
    return max(max_num_seqs - max(max_num_seqs // SPARE_SHARE, 1) - 1, 0)


@dataclass(slots=True)
class _Response:
    """Choices that wait, and how many the engine has."""

    waiting: deque[EngineRequest]
    num_running: int = 1


class ChoiceShare:
    """Gives the engine the first choice of every response at once, and further ones by a limit.

    The further choices of all responses share the limit in turns, so that neither the engine's
    queue nor its batch fills up with the choices of one response. Event loop only.
    """

    def __init__(self, limit: int, submit: Callable[[EngineRequest], None]) -> None:
        """``limit`` is on running choices beyond the first one of each response."""
        self._limit = limit
        self._submit = submit
        self._num_further = 0
        self._open: dict[Hashable, _Response] = {}  # those with more than one choice
        self._line: OrderedDict[Hashable, None] = OrderedDict()  # those whose choices wait

    def enter(self, response: Hashable, requests: Sequence[EngineRequest]) -> None:
        """Submit what may be submitted."""
        self._submit(requests[0])
        if len(requests) > 1:
            self._open[response] = _Response(deque(requests[1:]))
            self._line[response] = None
            self._fill()

    def end(self, response: Hashable) -> None:
        """A choice of the response has ended."""
        found = self._open.get(response)
        if found is None:
            return
        self._move(found, -1)
        if found.waiting and not found.num_running:  # its next choice is no further one
            self._start(response)
        self._fill()

    def leave(self, response: Hashable) -> None:
        """Submit nothing more of the response. Idempotent."""
        found = self._open.pop(response, None)
        if found is not None:
            self._line.pop(response, None)
            self._move(found, -found.num_running)
            self._fill()

    def clear(self) -> None:
        """Submit nothing more."""
        self._line.clear()
        for found in self._open.values():
            found.waiting.clear()

    def _fill(self) -> None:
        while self._line and self._num_further < self._limit:
            self._start(next(iter(self._line)))

    def _start(self, response: Hashable) -> None:
        found = self._open[response]
        request = found.waiting.popleft()
        self._line.move_to_end(response)
        if not found.waiting:
            del self._line[response]
        self._move(found, 1)
        self._submit(request)

    def _move(self, found: _Response, change: int) -> None:
        """Change the number of running choices. All but one are further ones."""
        before = found.num_running
        found.num_running += change
        self._num_further += max(found.num_running - 1, 0) - max(before - 1, 0)
