"""RequestRecord: the times and counts of one request, measured by its sender."""

from __future__ import annotations

from itertools import pairwise

import msgspec

REJECTED = frozenset({429, 503})
"""HTTP statuses of a server without capacity: the request is rejected, not failed."""


class RequestTimes(msgspec.Struct, kw_only=True):
    """One request from its submission to its end. All times are ``time.perf_counter()`` seconds.

    ``due`` is when the schedule wants it submitted, ``submit`` when it was; the submitter sets
    both. ``token_times`` are the arrivals of the pieces with text, one token each unless the
    server sends several in one. Counts come from the server's usage record; without one, pieces
    are counted as tokens and ``estimated`` is True. ``cached_tokens`` is None if the server does
    not report them. ``status`` is the HTTP status, 0 without an answer. ``error`` is None for a
    complete answer.
    """

    due: float = 0.0
    submit: float = 0.0
    token_times: list[float] = []
    end: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    estimated: bool = False
    status: int = 0
    error: str | None = None
    finish_reason: str | None = None

    @property
    def first(self) -> float | None:
        """When the first piece of text arrived."""
        return self.token_times[0] if self.token_times else None

    @property
    def last(self) -> float | None:
        """When the last piece of text arrived."""
        return self.token_times[-1] if self.token_times else None

    @property
    def is_completed(self) -> bool:
        """Whether the answer is complete."""
        return self.error is None and self.end > 0

    @property
    def is_rejected(self) -> bool:
        """Whether the server refused the request for lack of capacity."""
        return self.status in REJECTED

    @property
    def ttft(self) -> float | None:
        """Seconds from the submission to the first piece of text."""
        return None if self.first is None else self.first - self.submit

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None unless tokens arrived in at least two pieces."""
        if len(self.token_times) < 2 or self.completion_tokens < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.completion_tokens - 1)

    @property
    def gaps(self) -> list[float]:
        """Seconds between successive pieces: inter-token latencies."""
        return [b - a for a, b in pairwise(self.token_times)]

    @property
    def latency(self) -> float:
        """Seconds from the submission to the end."""
        return self.end - self.submit

    @property
    def lag(self) -> float:
        """Seconds from the due time to the submission."""
        return self.submit - self.due


class EngineRecord(RequestTimes, kw_only=True):
    """A request to an engine in this process.

    ``tokenize`` and ``add`` are durations in seconds: of tokenizing the prompt, unless that was
    done before submission, and of passing the request to the core thread. ``ready`` is when the
    prompt was tokenized, ``scheduled`` when the request's first step was scheduled.
    """

    tokenize: float | None = None
    add: float | None = None
    ready: float = 0.0
    scheduled: float | None = None

    @property
    def queue_wait(self) -> float | None:
        """Seconds from ``ready`` to the first step."""
        return None if self.scheduled is None else self.scheduled - self.ready

    @property
    def prefill(self) -> float | None:
        """Seconds from the first step to the first piece of text."""
        if self.scheduled is None or self.first is None:
            return None
        return self.first - self.scheduled
