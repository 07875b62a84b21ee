"""Debts: what tenants took beyond their shares. Integers only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.scheduler.shares import equal_shares


class Debts:
    """Rows (see PromptRows) of tenants' prompts beyond their shares of steps. Core thread only.

    A step has a token or two of a prompt, however many rows they cost: late in a long one, more
    than a share. While others need more than theirs, a tenant that owes a share waits out a step.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def shares(self, demands: Mapping[str, int], budget: int) -> dict[str, int]:
        """Share of a step's budget for each tenant that does not wait it out, in their order."""
        shares = _shares(demands, budget)
        waiting_out = self.waiting_out(shares, demands)
        if waiting_out:
            rest = {name: demand for name, demand in demands.items() if name not in waiting_out}
            shares = _shares(rest, budget)
            self.pay(waiting_out, max(shares.values()))
        return shares

    def waiting_out(self, shares: Mapping[str, int], demands: Mapping[str, int]) -> set[str]:
        """Tenants of a step that get none of it: those that owe a share. Never all of them."""
        owing = {name for name, share in shares.items() if self._rows.get(name, 0) >= share}
        if all(shares[name] >= demands[name] for name in shares.keys() - owing):
            return set()
        return owing

    def pay(self, names: Collection[str], num_rows: int) -> None:
        """These tenants waited out a step, of which each other one got at most so much."""
        for name in names:
            self._rows[name] = max(0, self._rows[name] - num_rows)

    def count(self, name: str, num_rows: int, share: int) -> None:
        """Count what a tenant got of a step, and what its share was."""
        self._rows[name] = max(0, self._rows.get(name, 0) + num_rows - share)

    def keep(self, names: Collection[str]) -> None:
        """Forget the debts of all others, and one of a tenant alone: it took from nobody."""
        self._rows = {n: self._rows.get(n, 0) for n in names} if len(names) > 1 else {}


def _shares(demands: Mapping[str, int], budget: int) -> dict[str, int]:
    return dict(zip(demands, equal_shares([*demands.values()], budget), strict=True))
