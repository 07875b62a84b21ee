"""The five loads that servers are compared under, and their smaller versions for slow machines.

S1  one stream at a time: 32 tokens in, 128 out
S2  64 requests, one each 20 ms: 1 to 8 in, 128 out
S3  32 at a time, 64 in all: 256 in, 128 out (``s3-16``: 16 at a time, 32 in all)
S4  8 at a time, 32 in all, sharing a prefix of 1,024 tokens (700 where the context is no longer
    than 1,024): 32 more in, 32 out (``s4-unshared``: 16 in all, prefixes of their own)
S5  8 streams, 32 in, 256 out; once each has 16, a prompt of 900 tokens arrives

Everything is greedy and runs to its ``max_tokens``. Prompts are words of the random models'
tokenizer, one token each; every run has prompts of its own, so that no prefix cache can answer for
an earlier run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["closed", "open", "interfere"]

SHORT_CONTEXT = 1024
"""Models of this context or less get the short prefix."""

MIN_TOKENS = 16
"""A scaled run generates at least as many tokens a request: fewer would measure prefill alone."""

DEFAULT = ("s1", "s2", "s3", "s4", "s5")

WARM_UP = "warm-up"
"""One short request, before anything is measured."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Which requests are sent when. Words are tokens.

    ``closed``: ``concurrency`` clients, each starts its next request when its last has ended.
    ``open``: a request each ``interval`` seconds. ``interfere``: all at once, and a request of
    ``long_words`` when each has ``start_after`` tokens.
    """

    name: str
    kind: Kind
    num_requests: int
    concurrency: int
    prompt_words: tuple[int, int]
    max_tokens: int
    prefix_words: int = 0
    shares_prefix: bool = False
    interval: float = 0.0
    start_after: int = 0
    long_words: int = 0
    long_max_tokens: int = 8

    @property
    def mean_prompt(self) -> float:
        """Tokens of a prompt without its prefix, on average."""
        return sum(self.prompt_words) / 2

    def scaled(self, scale: float) -> Scenario:
        """About ``scale`` of the work, and the same load while it lasts.

        First there are fewer requests, but as many at a time; what is left of the factor goes
        into their ``max_tokens``. Open and interfering loads keep all requests: their number is
        the batch.
        """
        num_requests = self.num_requests
        if self.kind == "closed":
            num_requests = max(self.concurrency, round(num_requests * scale))
        rest = min(1.0, scale * self.num_requests / num_requests)
        least = MIN_TOKENS if self.kind != "interfere" else 4 * self.start_after
        max_tokens = max(least, round(self.max_tokens * rest))
        return replace(self, num_requests=num_requests, max_tokens=min(max_tokens, self.max_tokens))


def scenarios(max_model_len: int, scale: float = 1.0) -> dict[str, Scenario]:
    """All of them, by name, for a model of this context."""
    prefix = 700 if max_model_len <= SHORT_CONTEXT else 1024
    found = [
        Scenario(
            name=WARM_UP,
            kind="closed",
            num_requests=1,
            concurrency=1,
            prompt_words=(16, 16),
            max_tokens=8,
        ),
        Scenario(
            name="s1",
            kind="closed",
            num_requests=4,
            concurrency=1,
            prompt_words=(32, 32),
            max_tokens=128,
        ),
        Scenario(
            name="s2",
            kind="open",
            num_requests=64,
            concurrency=64,
            interval=0.02,
            prompt_words=(1, 8),
            max_tokens=128,
        ),
        Scenario(
            name="s3-16",
            kind="closed",
            num_requests=32,
            concurrency=16,
            prompt_words=(256, 256),
            max_tokens=128,
        ),
        Scenario(
            name="s3",
            kind="closed",
            num_requests=64,
            concurrency=32,
            prompt_words=(256, 256),
            max_tokens=128,
        ),
        Scenario(
            name="s4",
            kind="closed",
            num_requests=32,
            concurrency=8,
            prompt_words=(32, 32),
            max_tokens=32,
            prefix_words=prefix,
            shares_prefix=True,
        ),
        Scenario(
            name="s4-unshared",
            kind="closed",
            num_requests=16,
            concurrency=8,
            prompt_words=(32, 32),
            max_tokens=32,
            prefix_words=prefix,
        ),
        Scenario(
            name="s5",
            kind="interfere",
            num_requests=8,
            concurrency=8,
            prompt_words=(32, 32),
            max_tokens=256,
            start_after=16,
            long_words=900,
        ),
    ]
    return {scenario.name: scenario.scaled(scale) for scenario in found}
