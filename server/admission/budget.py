"""Budget: how much of one resource all requests together may hold, and its fair division."""

from __future__ import annotations

import math
from collections.abc import Callable

from core.contract.errors import InvalidRequest, QueueFull

MIN_RETRY_AFTER, MAX_RETRY_AFTER = 1, 60
"""Seconds. Bounds of ``Retry-After``."""

RESERVE_SHARE = 4
"""The limit divided by this is the reserve of tenants that hold less than their fair share."""

TIME_CONSTANT = 10.0
"""Seconds after which a measurement counts a third."""


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
        name: str = "",
        full: str,
        never: str,
        param: str | None = None,
        clock: Callable[[], float],
        most_each: int | None = None,
    ) -> None:
        """``name`` says what is counted. ``most_each`` is how much one tenant may hold.

        ``full`` is the message of a 429. ``never``, formatted with both numbers, of a 400.
        """
        self.name = name
        self.limit = limit
        self._most_each = limit if most_each is None else most_each
        self.held = 0
        self._full = full
        self._never = never
        self._param = param
        self._clock = clock
        self._by_tenant: dict[str, int] = {}
        self._drained = DrainRate()

    @property
    def is_full(self) -> bool:
        """Whether only tenants below their share get more."""
        return self.held >= self.limit

    @property
    def num_tenants(self) -> int:
        """Number of tenants that hold something."""
        return len(self._by_tenant)

    def check_possible(self, total: int) -> None:
        """Raise InvalidRequest if no request may ever hold so much."""
        if total > self.limit:
            raise InvalidRequest(
                self._never.format(total, self.limit), param=self._param, code="invalid_value"
            )

    def take(self, tenant: str, amount: int) -> None:
        """Take ``amount`` or raise QueueFull."""
        if not self.has_room(tenant, amount):
            raise self.refusal(amount)
        self.add(tenant, amount)

    def add(self, tenant: str, amount: int) -> None:
        """Count ``amount`` that is there already, beyond the limit too. Never refuses."""
        if not amount:
            return
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
        self._drained.add(amount, self._clock())

    def refusal(self, amount: int) -> QueueFull:
        """What ``take`` raises."""
        return QueueFull(self._full, retry_after=self.retry_after(amount))

    def retry_after(self, amount: int) -> int:
        """Seconds until ``amount`` should fit, from the rate at which others give back."""
        rate = self._drained.per_second(self._clock())
        if rate is None:
            return MIN_RETRY_AFTER
        missing = max(self.held + amount - self.limit, 1)
        wait = missing / rate if rate > missing / MAX_RETRY_AFTER else MAX_RETRY_AFTER
        return max(math.ceil(wait), MIN_RETRY_AFTER)

    def has_room(self, tenant: str, amount: int) -> bool:
        """Whether ``take`` would succeed."""
        own = self._by_tenant.get(tenant, 0)
        if own + amount > self._most_each:
            return False
        if self.held + amount <= self.limit:
            return True
        num_tenants = len(self._by_tenant) + (tenant not in self._by_tenant)
        is_below_share = (own + amount) * num_tenants <= self.limit
        reserve = self.limit // RESERVE_SHARE
        return is_below_share and self.held + amount <= self.limit + reserve


class DrainRate:
    """Exponentially decaying mean of units per second. Times are seconds of one clock.

    The mean is corrected for the time before the first measurement, in which nothing was seen
    (Kingma and Ba, "Adam", section 3).
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._first: float | None = None
        self._last = 0.0

    def add(self, amount: int, now: float) -> None:
        """Count ``amount`` units that were given back at ``now``."""
        if self._first is None:
            self._first = self._last = now
        self._rate = self._decayed(now) + amount / TIME_CONSTANT
        self._last = now

    def per_second(self, now: float) -> float | None:
        """The rate at ``now``; None before the first measurement."""
        if self._first is None:
            return None
        age = max(now - self._first, 1.0)  # one measurement says little about its own second
        return self._decayed(now) / -math.expm1(-age / TIME_CONSTANT)

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._last - now) / TIME_CONSTANT)
