"""Debts: what tenants took beyond their shares. Integers only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Sequence as ReadOnly
from itertools import islice
from operator import itemgetter

MAX_STEPS = 8
"""A debt is at most what so many steps have for prompts, so that no tenant waits for long."""


class Debts:
    """Rows (see PromptRows) of tenants' prompts beyond their shares of steps. Core thread only.

    A step has a token or two of a prompt, however many rows they cost: late in a long one, more
    than a share. While others need more than theirs, a tenant that owes a share is passed over
    when it is its turn, and pays what each of the others got. One without prompts pays too, so a
    debt outlives the prompt that made it, but not for long. What all tenants owe is forgiven: no
    tenant lost it.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}  # debts, none of them 0

    def shares(self, demands: Mapping[str, int], budget: int, num_turns: int) -> dict[str, int]:
        """Share of a step's budget for each tenant that is in the step, the least demand first.

        ``demands`` are those of all tenants with prompts, in the order of their turns. The step
        has ``num_turns`` at most.
        """
        self._forgive(demands, MAX_STEPS * budget)
        shares = _shares(demands, budget, num_turns)
        turn = max(shares.values())
        others = {name: n for name, n in demands.items() if self._rows.get(name, 0) < turn}
        if all(shares.get(name, 0) >= demand for name, demand in others.items()):
            others = dict(demands)  # no tenant has to wait
        else:
            shares = _shares(others, budget, num_turns)
        paid = -(-max(shares.values()) * len(shares) // len(others))
        absent = self._rows.keys() - demands.keys()
        for name in absent | _passed_over(demands, others, num_turns):
            self._set(name, self._rows[name] - paid)
        return shares

    def count(self, name: str, num_rows: int, share: int) -> None:
        """Count what a tenant got of a step, and what its share was."""
        self._set(name, self._rows.get(name, 0) + num_rows - share)

    def _forgive(self, names: Collection[str], most: int) -> None:
        """Forgive what all these tenants owe, and what is more than ``most``."""
        least = min(self._rows.get(name, 0) for name in names)
        for name, num_rows in list(self._rows.items()):
            self._set(name, min(most, num_rows - least if name in names else num_rows))

    def _set(self, name: str, num_rows: int) -> None:
        if num_rows > 0:
            self._rows[name] = num_rows
        else:
            self._rows.pop(name, None)


def _shares(demands: Mapping[str, int], budget: int, num_turns: int) -> dict[str, int]:
    chosen = dict(sorted(islice(demands.items(), num_turns), key=itemgetter(1)))
    return dict(zip(chosen, equal_shares([*chosen.values()], budget), strict=True))


def _passed_over(names: Collection[str], others: Collection[str], num_turns: int) -> set[str]:
    """Return the names before the last turn of a step that only ``others`` are in."""
    found: set[str] = set()
    for name in names:
        if not num_turns:
            break
        if name in others:
            num_turns -= 1
        else:
            found.add(name)
    return found


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
