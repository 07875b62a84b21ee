"""Equal shares of a budget."""

from __future__ import annotations

from collections.abc import Sequence as ReadOnly


def equal_shares(demands: ReadOnly[int], budget: int) -> list[int]:
    """Divide ``budget`` equally, but give none more than its demand.

    What one does not need goes to the others in equal parts (max-min fairness). Shares that are
    less than their demand differ by at most 1.
    """
    shares = [0] * len(demands)
    for rank, i in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[i] = min(demands[i], budget // (len(demands) - rank))
        budget -= shares[i]
    return shares
