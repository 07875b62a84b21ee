"""engine_times: where the time of a request in the engine went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.messages import Work


@dataclass(frozen=True, slots=True)
class EngineTimes:
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
    known = [work for work in works if work is not None]
    if not known:
        return EngineTimes(now - submitted_at, 0.0, 0.0, None, now)
    until = min(max(work.until for work in known), now)
    until = max(until, submitted_at)
    starts = [work.started_at for work in known if work.started_at is not None]
    firsts = [work.first_token_at for work in known if work.first_token_at is not None]
    started = max(min(starts, default=until), submitted_at)
    first = max(min(firsts, default=until), started)
    waited, waited_before = 0.0, 0.0
    if len(works) == 1:
        waited, waited_before = known[0].waited, known[0].waited_before_first
    return EngineTimes(
        queue=started - submitted_at + waited,
        prefill=max(first - started - waited_before, 0.0),
        decode=max(until - first - (waited - waited_before), 0.0),
        first_token_at=min(firsts, default=None),
        until=until,
    )
