"""Which running sequence is preempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as ReadOnly

from core.sequence import Sequence


def victim_of(running: ReadOnly[Sequence], *, at_least: int = 1) -> Sequence | None:
    """The last admitted sequence of the tenant that has the most, if it has ``at_least`` so many.

    ``running`` is in order of admission. Of tenants with equally many, it is the last admitted.
    """
    counts = Counter(sequence.request.tenant for sequence in running)
    most = max(counts.values(), default=0)
    if most < at_least:
        return None
    return next((s for s in reversed(running) if counts[s.request.tenant] == most), None)
