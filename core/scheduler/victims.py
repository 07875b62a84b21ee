"""Which running sequence is preempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as ReadOnly

from core.state.sequence import Sequence


def victim_of(running: ReadOnly[Sequence], *, at_least: int = 1) -> Sequence | None:
    """A sequence of the tenant that has the most, if it has ``at_least`` so many.

    ``running`` is in order of admission. Of tenants with equally many, it is that of the last
    admitted sequence. Of its sequences with the largest ``priority``, it is the last admitted.
    """
    counts = Counter(sequence.request.tenant for sequence in running)
    most = max(counts.values(), default=0)
    if most < at_least:
        return None
    tenants = (sequence.request.tenant for sequence in reversed(running))
    tenant = next((name for name in tenants if counts[name] == most), None)
    own = (sequence for sequence in reversed(running) if sequence.request.tenant == tenant)
    return max(own, key=_priority, default=None)  # the first of equal ones


def _priority(sequence: Sequence) -> int:
    return sequence.request.priority
