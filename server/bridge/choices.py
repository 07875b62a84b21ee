"""ChoiceShare: which choices of responses with many of them the engine gets, and when."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from core.contract.messages import EngineRequest
from core.fair_queue import Entry, FairQueue, fair_entries

SPARE_SHARE = 8
"""One of so many sequences is left to other responses."""


def further_choices(max_num_seqs: int) -> int:
    """Most further choices in the engine, so that one response leaves others a spare share."""
    return max(max_num_seqs - max(max_num_seqs // SPARE_SHARE, 1) - 1, 0)


_Entry: TypeAlias = Entry[tuple[Hashable, EngineRequest]]


@dataclass(slots=True)
class _Response:
    """Choices that wait, the next one last, and how many the engine has."""

    waiting: list[_Entry]
    num_running: int = 1


class ChoiceShare:
    """Gives the engine the first choice of every response at once, and further ones by a limit.

    The further choices of all responses share the limit fairly, so that neither the engine's queue
    nor its batch fills up with the choices of one response. Event loop only.
    """

    def __init__(self, limit: int, submit: Callable[[EngineRequest], None]) -> None:
        """``limit`` is on running choices beyond the first one of each response."""
        self._limit = limit
        self._submit = submit
        self._num_further = 0
        self._queue: FairQueue[_Entry] = fair_entries()
        self._open: dict[Hashable, _Response] = {}
        """Responses with more than one choice."""
        self._names = map(str, count())

    def enter(self, response: Hashable, requests: Sequence[EngineRequest]) -> None:
        """Submit what may be submitted."""
        self._submit(requests[0])
        if len(requests) == 1:
            return
        name = next(self._names)
        entries = [Entry((response, request), name) for request in requests[1:]]
        for entry in entries:
            self._queue.add(entry)
        self._open[response] = _Response(entries[::-1])
        self._fill()

    def end(self, response: Hashable) -> None:
        """A choice of the response has ended."""
        found = self._open.get(response)
        if found is None:
            return
        self._move(found, -1)
        if found.waiting and not found.num_running:  # its next choice is no further one
            entry = found.waiting[-1]
            self._queue.remove(entry)
            self._start(entry)
        self._fill()

    def leave(self, response: Hashable) -> None:
        """Submit nothing more of the response. Idempotent."""
        found = self._open.pop(response, None)
        if found is not None:
            for entry in found.waiting:
                self._queue.remove(entry)
            self._move(found, -found.num_running)
            self._fill()

    def clear(self) -> None:
        """Submit nothing more."""
        for found in self._open.values():
            found.waiting.clear()
        self._queue = fair_entries()

    def _fill(self) -> None:
        while self._queue and self._num_further < self._limit:
            self._start(self._queue.pop())

    def _start(self, entry: _Entry) -> None:
        response, request = entry.value
        found = self._open[response]
        found.waiting.remove(entry)  # the last one
        self._move(found, 1)
        self._submit(request)

    def _move(self, found: _Response, change: int) -> None:
        """Change the number of running choices. All but one are further ones."""
        before = found.num_running
        found.num_running += change
        self._num_further += max(found.num_running - 1, 0) - max(before - 1, 0)
