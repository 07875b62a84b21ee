"""Lanes: one for each kind of work, so that small requests pass large ones."""

from __future__ import annotations

from server.admission.lane import Lane

LARGE_BODY = 64 * 1024
"""Bytes above which a request is tokenized in the lane of large ones."""

NUM_COMPILERS = 2
"""Grammars that are compiled at a time."""


class Lanes:
    """Worker threads by kind of work. Event loop only."""

    def __init__(self, num_workers: int) -> None:
        """``num_workers`` threads serve small requests, half as many large ones."""
        self.small = Lane("small", num_workers)
        self.large = Lane("large", max(num_workers // 2, 1))
        self.tokens = Lane("tokens", 1)
        self.grammars = Lane("grammars", NUM_COMPILERS)

    def of_size(self, num_bytes: int) -> Lane:
        """The lane that translates a request with a body of this size."""
        return self.large if num_bytes > LARGE_BODY else self.small

    @property
    def num_waiting(self) -> int:
        """Jobs that wait for a worker."""
        return sum(lane.num_waiting for lane in self._all)

    @property
    def num_running(self) -> int:
        """Jobs in workers."""
        return sum(lane.num_running for lane in self._all)

    @property
    def num_abandoned(self) -> int:
        """Jobs in workers whose clients have left."""
        return sum(lane.num_abandoned for lane in self._all)

    def close(self) -> None:
        """Start no more jobs. Does not wait for running ones."""
        for lane in self._all:
            lane.close()

    @property
    def _all(self) -> tuple[Lane, ...]:
        return self.small, self.large, self.tokens, self.grammars
