"""RequestRecord: what happened to one request, as its sender saw it."""

from __future__ import annotations

from itertools import pairwise

import msgspec

REJECTED = frozenset({429, 503})
"""HTTP statuses that say "not now": the request was refused, not failed."""


class RequestRecord(msgspec.Struct, kw_only=True):
    """One request from its submission to its end. All times are ``time.perf_counter()`` seconds.

    ``due`` is when the schedule wanted it submitted, ``submit`` when it was; both are set by
    whoever submits. ``token_times`` are the arrivals of the pieces that had text, one token each
    unless the server puts more into one. Counts come from the server's usage record; without
    one, pieces are counted for tokens and ``estimated`` is True. ``cached_tokens`` is None where
    the server does not say. ``status`` is the HTTP status, 0 if none came. A record with neither
    ``error`` is one of a request that was answered in full.
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
        """When the first piece of text came."""
        return self.token_times[0] if self.token_times else None

    @property
    def last(self) -> float | None:
        """When the last piece of text came."""
        return self.token_times[-1] if self.token_times else None

    @property
    def is_completed(self) -> bool:
        """Whether the answer is whole."""
        return self.error is None and self.end > 0

    @property
    def is_rejected(self) -> bool:
        """Whether the server said that it takes no more now."""
        return self.status in REJECTED

    @property
    def ttft(self) -> float | None:
        """Seconds from the submission to the first piece of text."""
        return None if self.first is None else self.first - self.submit

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None unless there are two that can be told apart."""
        if len(self.token_times) < 2 or self.completion_tokens < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.completion_tokens - 1)

    @property
    def gaps(self) -> list[float]:
        """Seconds between one piece and the next: inter-token latencies."""
        return [b - a for a, b in pairwise(self.token_times)]

    @property
    def latency(self) -> float:
        """Seconds from the submission to the end."""
        return self.end - self.submit

    @property
    def lag(self) -> float:
        """Seconds by which the submission was late."""
        return self.submit - self.due


class EngineRecord(RequestRecord, kw_only=True):
    """A request to an engine in this process, and what its stages took. Times as above.

    ``tokenize`` and ``add`` are seconds: for the prompt, if it was tokenized after submission,
    and for handing the request to the core thread. ``ready`` is when it was tokenized,
    ``scheduled`` when it was in a step first.
    """

    tokenize: float | None = None
    add: float | None = None
    ready: float = 0.0
    scheduled: float | None = None

    @property
    def queue_wait(self) -> float | None:
        """Seconds from its being ready to the first step that it was in."""
        return None if self.scheduled is None else self.scheduled - self.ready

    @property
    def prefill(self) -> float | None:
        """Seconds from the first step that it was in to its first piece of text."""
        if self.scheduled is None or self.first is None:
            return None
        return self.first - self.scheduled
