"""RateLimiter: requests and tokens that each tenant gets in a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from server.http.errors import APIError
from server.settings.types import Rates

MINUTE = 60.0
MAX_TENANTS = 4096
"""Tenants whose buckets are full again are forgotten, never while there are fewer than this."""

Headers = dict[str, str]


class _Bucket:
    """A token bucket that starts full. It may be overdrawn: the debt is paid by waiting."""

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self.level = float(limit)
        self._updated = now

    def refill(self, now: float) -> None:
        gained = (now - self._updated) * self.limit / MINUTE
        self.level = min(self.level + gained, float(self.limit))
        self._updated = now

    def seconds_until(self, level: float) -> float:
        """Seconds until the bucket holds so much."""
        return max(level - self.level, 0.0) * MINUTE / self.limit

    @property
    def is_full(self) -> bool:
        return self.level >= self.limit


class RateLimiter:
    """Token buckets of all tenants. Event loop only.

    A request takes one from the bucket of requests. Its tokens are charged when they are known:
    those of the prompt after tokenizing, those of the answer at its end. So the bucket of tokens
    may be overdrawn by one request; the next one waits until it holds something again.
    """

    def __init__(self, rates: Rates, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = {
            name: limit
            for name, limit in (("requests", rates.requests), ("tokens", rates.tokens))
            if limit
        }
        self.refusals = {"request_rate": 0, "token_rate": 0}
        """Requests that were refused, by what they had too much of."""
        self._clock = clock
        self._buckets: dict[str, dict[str, _Bucket]] = {}
        self._most_tenants = MAX_TENANTS
        """When there are so many, those with full buckets are forgotten."""

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self._limits)

    def admit(self, tenant: str) -> None:
        """Count a request. Raises APIError (429) if a bucket is empty."""
        buckets = self._of(tenant)
        for name, bucket in buckets.items():
            if bucket.level < 1:
                self.refusals[f"{name.removesuffix('s')}_rate"] += 1
                wait = max(math.ceil(bucket.seconds_until(1)), 1)
                raise APIError(
                    429,
                    f"Rate limit reached: {bucket.limit} {name} per minute. Try again in {wait} s.",
                    type_=name,
                    code="rate_limit_exceeded",
                    headers={"retry-after": str(wait)} | self.headers(tenant),
                )
        if "requests" in buckets:
            buckets["requests"].level -= 1

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Count tokens."""
        if num_tokens and "tokens" in self._limits:
            self._of(tenant)["tokens"].level -= num_tokens

    def headers(self, tenant: str) -> Headers:
        """OpenAI's ``x-ratelimit-*`` headers: limit, what is left, time until it is full again."""
        headers: Headers = {}
        for name, bucket in self._of(tenant).items():
            headers[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(math.floor(bucket.level), 0))
            headers[f"x-ratelimit-reset-{name}"] = _duration(bucket.seconds_until(bucket.limit))
        return headers

    def _of(self, tenant: str) -> dict[str, _Bucket]:
        """The tenant's buckets as of now."""
        now = self._clock()
        buckets = self._buckets.get(tenant)
        if buckets is None:
            if len(self._buckets) >= self._most_tenants:
                self._forget_full(now)
            buckets = {name: _Bucket(limit, now) for name, limit in self._limits.items()}
            self._buckets[tenant] = buckets
        for bucket in buckets.values():
            bucket.refill(now)
        return buckets

    def _forget_full(self, now: float) -> None:
        """A bucket that is full is like a new one."""
        for buckets in self._buckets.values():
            for bucket in buckets.values():
                bucket.refill(now)
        self._buckets = {
            tenant: buckets
            for tenant, buckets in self._buckets.items()
            if not all(bucket.is_full for bucket in buckets.values())
        }
        # Twice what is left, so that the search costs each new tenant little.
        self._most_tenants = max(2 * len(self._buckets), MAX_TENANTS)


def _duration(seconds: float) -> str:
    """OpenAI's form of a duration: ``120ms``, ``7.66s``, ``6m0s``."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.0f}s" if minutes else f"{rest:.2f}s"
