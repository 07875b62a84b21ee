"""engine_times: where the time of a request in the engine went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.contract.messages import Work


class EngineTimes(NamedTuple):
    """Seconds. ``first_token_at`` and ``until`` are times of the engine's clock."""

    queue: float
    prefill: float
    decode: float
    first_token_at: float | None
    until: float


def engine_times(works: Sequence[Work | None], submitted_at: float, now: float) -> EngineTimes:
    """The times of a request whose choices did these works; None of one that has done nothing.

    The request waits until its first choice starts, and prefills until its first token. Of one
    choice, waits after preemptions count as waits too.
    """
    start, first_at, until, is_known = now, None, submitted_at, False
    for work in works:
        if work is None:
            continue
        is_known = True
        until = max(until, work.until)
        if work.started_at is not None:
            start = min(start, work.started_at)
        if work.first_token_at is not None:
            first_at = (
                work.first_token_at if first_at is None else min(first_at, work.first_token_at)
            )
    if not is_known:
        return EngineTimes(now - submitted_at, 0.0, 0.0, None, now)
    until = min(until, now)
    start = max(min(start, until), submitted_at)
    first = max(until if first_at is None else first_at, start)
    waited = waited_before = 0.0
    if len(works) == 1 and works[0] is not None:
        waited, waited_before = works[0].waited, works[0].waited_before_first
    return EngineTimes(
        start - submitted_at + waited,
        max(first - start - waited_before, 0.0),
        max(until - first - (waited - waited_before), 0.0),
        first_at,
        until,
    )
