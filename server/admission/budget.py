"""Budget: how much of one resource all requests together may hold, and its fair division."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from core.contract.errors import InvalidRequest, QueueFull

MIN_RETRY_AFTER, MAX_RETRY_AFTER = 1, 60
"""Seconds. Bounds of ``Retry-After``."""

RESERVE_SHARE = 4
"""The limit divided by this is the reserve of tenants that hold less than their fair share."""

TIME_CONSTANT = 10.0
"""Seconds after which what was given back counts a third."""


class Budget:
    """Amounts of one resource that requests hold. Event loop only.

    One tenant alone may hold the whole limit, or ``most_each``. When the limit is reached, a tenant
    that holds less than an equal share of it is admitted into a reserve beyond it, so that a tenant
    that fills the budget shuts only itself out.
    """

    def __init__(
        self,
        limit: int,
        *,
        full: str,
        never: str = "",
        param: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        most_each: int | None = None,
    ) -> None:
        """``full`` is the message of a 429; ``never``, with the amount, the start of a 400's.

        A budget without ``never`` is not asked for what ``check_possible`` refuses.
        """
        self.limit = limit
        self.held = 0
        self.num_refused = 0  # requests that ``take`` has refused
        self._most_each = limit if most_each is None else most_each
        self._full = full
        self._never = never
        self._param = param
        self._clock = clock
        self._by_tenant: dict[str, int] = {}
        self._given_back = 0.0  # decays exponentially
        self._first_given_back: float | None = None
        self._last_given_back = 0.0

    def check_possible(self, total: int) -> None:
        """Raise InvalidRequest if no request may ever hold so much."""
        if total > self.limit:
            message = f"{self._never.format(total)}; the server takes at most {self.limit}."
            raise InvalidRequest(message, param=self._param, code="invalid_value")

    def take(self, tenant: str, amount: int) -> None:
        """Take ``amount`` or raise QueueFull."""
        if not self._has_room(tenant, amount):
            self.num_refused += 1
            raise QueueFull(self._full, retry_after=self.retry_after(amount))
        self.add(tenant, amount)

    def add(self, tenant: str, amount: int) -> None:
        """Count ``amount`` that is there already, beyond the limit too. Never refuses."""
        if amount:
            self.held += amount
            self._by_tenant[tenant] = self._by_tenant.get(tenant, 0) + amount

    def give_back(self, tenant: str, amount: int) -> None:
        """Return what ``take`` or ``add`` counted, or a part of it."""
        if not amount:
            return
        left = self._by_tenant[tenant] - amount
        assert left >= 0
        if left:
            self._by_tenant[tenant] = left
        else:
            del self._by_tenant[tenant]
        self.held -= amount
        now = self._clock()
        if self._first_given_back is None:
            self._first_given_back = self._last_given_back = now
        self._given_back = self._decayed(now) + amount
        self._last_given_back = now

    def retry_after(self, amount: int) -> int:
        """Seconds until ``amount`` should fit, from the mean rate at which others give back.

        The mean is corrected for the time before the first (Kingma and Ba, "Adam", section 3).
        """
        if self._first_given_back is None:
            return MIN_RETRY_AFTER
        now = self._clock()
        age = max(now - self._first_given_back, 1.0)  # one measurement says little of its second
        rate = self._decayed(now) / (TIME_CONSTANT * -math.expm1(-age / TIME_CONSTANT))
        missing = max(self.held + amount - self.limit, 1)
        wait = missing / rate if rate > missing / MAX_RETRY_AFTER else MAX_RETRY_AFTER
        return max(math.ceil(wait), MIN_RETRY_AFTER)

    def _has_room(self, tenant: str, amount: int) -> bool:
        own = self._by_tenant.get(tenant, 0)
        if own + amount > self._most_each:
            return False
        if self.held + amount <= self.limit:
            return True
        num_tenants = len(self._by_tenant) + (tenant not in self._by_tenant)
        is_below_share = (own + amount) * num_tenants <= self.limit
        reserve = self.limit // RESERVE_SHARE
        return is_below_share and self.held + amount <= self.limit + reserve

    def _decayed(self, now: float) -> float:
        return self._given_back * math.exp((self._last_given_back - now) / TIME_CONSTANT)
