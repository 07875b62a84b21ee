"""Budget: how much of a resource requests may hold at once. RateLimiter: how much in a minute.

HeldBody: what the body of one request holds of a budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from core.contract.errors import InvalidRequest, QueueFull
from server.http.errors import APIError, body_too_large
from server.settings.types import Rates

MIN_RETRY_AFTER, MAX_RETRY_AFTER = 1, 60  # bounds of ``Retry-After`` in seconds
RESERVE_SHARE = 4  # the limit divided by this is the reserve of tenants below their fair share
TIME_CONSTANT = 10.0  # seconds after which what was given back counts a third
MINUTE = 60.0
MAX_TENANTS = 4096  # with buckets; from then on those whose buckets are full are forgotten


@dataclass(eq=False)
class Budget:
    """Amounts of one resource that requests hold. Event loop only.

    One tenant alone may hold the whole limit, or ``most_each``. When the limit is reached, a tenant
    that holds less than an equal share of it is admitted into a reserve beyond it, so that a tenant
    that fills the budget shuts only itself out.
    """

    limit: int
    _: KW_ONLY
    full: str  # the message of a 429
    never: str = ""  # with the amount, how the message of a 400 begins
    param: str | None = None
    clock: Callable[[], float] = time.monotonic
    most_each: int | None = None
    held: int = field(default=0, init=False)
    num_refused: int = field(default=0, init=False)  # requests that ``take`` has refused
    _by_tenant: dict[str, int] = field(default_factory=dict, init=False)
    _given_back: float = field(default=0.0, init=False)  # decays exponentially
    _first_given_back: float | None = field(default=None, init=False)
    _last_given_back: float = field(default=0.0, init=False)

    def check_possible(self, total: int) -> None:
        """Raise InvalidRequest if no request may ever hold so much."""
        if total > self.limit:
            message = f"{self.never.format(total)}; the server takes at most {self.limit}."
            raise InvalidRequest(message, param=self.param, code="invalid_value")

    def take(self, tenant: str, amount: int) -> None:
        """Take ``amount`` or raise QueueFull."""
        if not self._has_room(tenant, amount):
            self.num_refused += 1
            raise QueueFull(self.full, retry_after=self.retry_after(amount))
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
        self._by_tenant[tenant] -= amount
        assert self._by_tenant[tenant] >= 0
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        self.held -= amount
        now = self.clock()
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
        now = self.clock()
        age = max(now - self._first_given_back, 1.0)  # one measurement says little of its second
        rate = self._decayed(now) / (TIME_CONSTANT * -math.expm1(-age / TIME_CONSTANT))
        missing = max(self.held + amount - self.limit, 1)
        wait = missing / rate if rate > missing / MAX_RETRY_AFTER else MAX_RETRY_AFTER
        return max(math.ceil(wait), MIN_RETRY_AFTER)

    def _has_room(self, tenant: str, amount: int) -> bool:
        own = self._by_tenant.get(tenant, 0)
        if own + amount > (self.limit if self.most_each is None else self.most_each):
            return False
        if self.held + amount <= self.limit:
            return True
        num_tenants = len(self._by_tenant) + (tenant not in self._by_tenant)
        is_below_share = (own + amount) * num_tenants <= self.limit
        reserve = self.limit // RESERVE_SHARE
        return is_below_share and self.held + amount <= self.limit + reserve

    def _decayed(self, now: float) -> float:
        return self._given_back * math.exp((self._last_given_back - now) / TIME_CONSTANT)


class HeldBody:
    """The bytes of one body and their part of the budget. Event loop only."""

    def __init__(self, budget: Budget, tenant: str, most: int) -> None:
        """``most`` is the size of the largest body."""
        self.most = most
        self.data = b""
        """The whole body, once it was read; empty after ``release``."""
        self._budget = budget
        self._tenant = tenant
        self._size = 0

    def take(self, size: int) -> None:
        """Count further bytes. Raises QueueFull, or APIError for more than the largest body."""
        if self._size + size > self.most:
            raise body_too_large()
        if size:
            self._budget.take(self._tenant, size)
            self._size += size

    def release(self) -> None:
        """Forget the bytes and give their part of the budget back. Idempotent."""
        self.data = b""
        self._budget.give_back(self._tenant, self._size)
        self._size = 0


class RateLimiter:
    """Token buckets of all tenants, full at first. Event loop only.

    A request takes one from the bucket of requests. Its tokens are charged when they are known:
    those of the prompt after tokenizing, those of the answer at its end. So the bucket of tokens
    may be overdrawn by one request; the next one waits until it holds something again.
    """

    def __init__(self, rates: Rates, *, clock: Callable[[], float] = time.monotonic) -> None:
        limits = {"requests": rates.requests, "tokens": rates.tokens}
        self._limits = {name: limit for name, limit in limits.items() if limit}
        self.refusals = {"request_rate": 0, "token_rate": 0}  # by what there was too much of
        self._clock = clock
        self._levels: dict[str, tuple[float, dict[str, float]]] = {}  # and when they were so
        self._most_tenants = MAX_TENANTS  # until those with full buckets are forgotten

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self._limits)

    def admit(self, tenant: str) -> None:
        """Count a request. Raises APIError (429) if a bucket is empty."""
        levels = self._of(tenant)
        for name, level in levels.items():
            if level < 1:
                self.refusals[f"{name.removesuffix('s')}_rate"] += 1
                limit, wait = self._limits[name], max(math.ceil(self._seconds(name, 1 - level)), 1)
                raise APIError(
                    429,
                    f"Rate limit reached: {limit} {name} per minute. Try again in {wait} s.",
                    type_=name,
                    code="rate_limit_exceeded",
                    headers={"retry-after": str(wait)} | self.headers(tenant),
                )
        if "requests" in levels:
            levels["requests"] -= 1

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Count tokens."""
        if num_tokens and "tokens" in self._limits:
            self._of(tenant)["tokens"] -= num_tokens

    def headers(self, tenant: str) -> dict[str, str]:
        """OpenAI's ``x-ratelimit-*`` headers: limit, what is left, time until it is full again."""
        headers = {}
        for name, level in self._of(tenant).items():
            limit = self._limits[name]
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(math.floor(level), 0))
            headers[f"x-ratelimit-reset-{name}"] = _duration(self._seconds(name, limit - level))
        return headers

    def _of(self, tenant: str) -> dict[str, float]:
        """The levels of the tenant's buckets as of now."""
        now = self._clock()
        if tenant not in self._levels and len(self._levels) >= self._most_tenants:
            self._forget_full(now)
        levels = self._refilled(tenant, now)
        self._levels[tenant] = now, levels
        return levels

    def _refilled(self, tenant: str, now: float) -> dict[str, float]:
        since, levels = self._levels.get(tenant, (now, self._limits))
        return {
            name: min(levels[name] + (now - since) * limit / MINUTE, float(limit))
            for name, limit in self._limits.items()
        }

    def _forget_full(self, now: float) -> None:
        """A bucket that is full is like a new one."""
        refilled = {tenant: self._refilled(tenant, now) for tenant in self._levels}
        self._levels = {
            tenant: (now, levels) for tenant, levels in refilled.items() if levels != self._limits
        }
        # Twice what is left, so that the search costs each new tenant little.
        self._most_tenants = max(2 * len(self._levels), MAX_TENANTS)

    def _seconds(self, name: str, amount: float) -> float:
        """Seconds in which the bucket gains so much."""
        return max(amount, 0.0) * MINUTE / self._limits[name]


def _duration(seconds: float) -> str:
    """OpenAI's form of a duration: ``120ms``, ``7.66s``, ``6m0s``."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.0f}s" if minutes else f"{rest:.2f}s"
