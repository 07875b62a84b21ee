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
