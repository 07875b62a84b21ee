"""The loads of the server comparison, and smaller versions of them for slow machines.

S1  one stream at a time: 32 tokens in, 128 out
S2  64 requests, one every 20 ms: 1 to 8 tokens in, 128 out
S3  64 requests, 32 at a time: 256 in, 128 out (``s3-16``: 32 requests, 16 at a time)
S4  32 requests, 8 at a time, with a common prefix of 1,024 tokens (700 if the model's context is
    1,024 or less): 32 more in, 32 out (``s4-unshared``: 16 requests, each with its own prefix)
S5  8 streams, 32 in, 256 out; a prompt of 900 tokens arrives once each stream has 16 tokens

``s2-sampled``  S2 with ``SAMPLED`` instead of greedy decoding
``long``        one request: 6,000 in, 32 out; only models whose context has room for it
``context-8k``  one request: 8,000 in, 64 out; when it has ended, 8 at once with the same first
                7,968 tokens, so that a prefix cache leaves little of their prompts
``context-32k`` the same with 32,000 tokens
``prefill``     4 requests, one at a time: 1,024 in, 16 out
``streams-N``   N requests at once: 32 in, 64 out; N is 1, 2, 4, 8, 16, 32 or 64

Requests are greedy unless noted, and run to their ``max_tokens``. Prompts consist of words of the
random models' tokenizer, one token each. Every run draws new prompts, so that no prefix cache can
answer for an earlier run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["closed", "open", "interfere", "follow"]

SHORT_CONTEXT = 1024
"""Models with this context or less get the short prefix."""

SHORT_PREFIX, LONG_PREFIX = 700, 1024

MIN_TOKENS = 16
"""The fewest tokens a scaled request generates; with fewer, a run would measure prefill alone."""

STREAMS = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes of the ``streams-N`` loads."""

DEFAULT = (
    *("s1", "s2", "s2-sampled", "s3", "s4", "s5"),
    *(f"streams-{number}" for number in STREAMS),
    "long",
)

GREEDY: Mapping[str, float] = {"temperature": 0.0}

SAMPLED: Mapping[str, float] = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
"""What Qwen3 recommends. Every field is sent, because the servers' defaults differ."""

SLOTS = 64
"""Concurrent requests of every server: the most that a scenario has."""

SLOT_CONTEXT = 1280
"""Tokens of the longest request of all scenarios but ``long`` and those of CONTEXTS."""

LONG_SLOTS, LONG_CONTEXT = 2, 6400
"""The same for ``long``: servers that reserve a context per slot have no room for 64 of these."""

CONTEXTS = {"context-8k": 8000, "context-32k": 32_000}
"""Tokens of the prompts of the loads with long contexts."""

CONTEXT_SLOTS, CONTEXT_ROOM = 8, 32_256
"""Concurrent requests of these loads, and the tokens of the longest one in whole blocks of 256."""

WARM_UP = "warm-up"
"""One short request, before the measurements."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Which requests are sent, and when. One word is one token.

    ``closed``: ``concurrency`` clients; each starts its next request when its last has ended.
    ``open``: one request every ``interval`` seconds. ``interfere``: all requests at once, and one
    of ``long_words`` when each stream has ``start_after`` tokens. ``follow``: one request, then all
    others at once.
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
    is_sampled: bool = False
    slots: int = SLOTS
    slot_context: int = SLOT_CONTEXT

    @property
    def room(self) -> tuple[int, int]:
        """Concurrent requests and tokens per request that the server must have room for."""
        return self.slots, self.slot_context

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling fields of every request."""
        return dict(SAMPLED if self.is_sampled else GREEDY)

    @property
    def num_tokens(self) -> int:
        """Tokens of the longest request, prompt and answer."""
        prompt = self.prefix_words + self.prompt_words[1] + self.max_tokens
        return max(prompt, self.long_words + self.long_max_tokens)

    @property
    def num_streams(self) -> int:
        """Requests of which the main figures are: all, or those that follow the first."""
        return self.num_requests - (self.kind == "follow")

    @property
    def mean_prompt(self) -> float:
        """Mean number of tokens of a prompt, without its prefix."""
        return sum(self.prompt_words) / 2

    def scaled(self, scale: float) -> Scenario:
        """About ``scale`` of the work at the same concurrency.

        A closed load first gets fewer requests, at least ``concurrency``; the rest of the factor
        reduces ``max_tokens``. The other kinds keep all requests, because their number is the batch
        size.
        """
        num_requests = self.num_requests
        if self.kind == "closed":
            num_requests = max(self.concurrency, round(num_requests * scale))
        rest = min(1.0, scale * self.num_requests / num_requests)
        least = MIN_TOKENS if self.kind != "interfere" else 4 * self.start_after
        max_tokens = max(least, round(self.max_tokens * rest))
        return replace(self, num_requests=num_requests, max_tokens=min(max_tokens, self.max_tokens))


def closed(name: str, num_requests: int, concurrency: int, words: int, max_tokens: int) -> Scenario:
    """A closed load of equal requests with prompts of ``words`` words."""
    return Scenario(
        name=name,
        kind="closed",
        num_requests=num_requests,
        concurrency=concurrency,
        prompt_words=(words, words),
        max_tokens=max_tokens,
    )


_S1 = closed("s1", num_requests=4, concurrency=1, words=32, max_tokens=128)
S2 = Scenario(
    name="s2",
    kind="open",
    num_requests=64,
    concurrency=64,
    interval=0.02,
    prompt_words=(1, 8),
    max_tokens=128,
)
_S3 = closed("s3", num_requests=64, concurrency=32, words=256, max_tokens=128)
_S4 = replace(
    closed("s4", num_requests=32, concurrency=8, words=32, max_tokens=32),
    prefix_words=LONG_PREFIX,
    shares_prefix=True,
)
_S5 = Scenario(
    name="s5",
    kind="interfere",
    num_requests=8,
    concurrency=8,
    prompt_words=(32, 32),
    max_tokens=256,
    start_after=16,
    long_words=900,
)
_LONG = replace(
    closed("long", num_requests=1, concurrency=1, words=6000, max_tokens=32),
    slots=LONG_SLOTS,
    slot_context=LONG_CONTEXT,
)


def _context(name: str, words: int) -> Scenario:
    """One request with a prompt of ``words`` words, then eight with nearly the same one."""
    own = 32
    return Scenario(
        name=name,
        kind="follow",
        num_requests=1 + CONTEXT_SLOTS,
        concurrency=CONTEXT_SLOTS,
        prefix_words=words - own,
        prompt_words=(own, own),
        shares_prefix=True,
        max_tokens=64,
        slots=CONTEXT_SLOTS,
        slot_context=CONTEXT_ROOM,
    )


_ALL = (
    closed(WARM_UP, num_requests=1, concurrency=1, words=16, max_tokens=8),
    _S1,
    S2,
    replace(S2, name="s2-sampled", is_sampled=True),
    replace(_S3, name="s3-16", num_requests=32, concurrency=16),
    _S3,
    _S4,
    replace(_S4, name="s4-unshared", num_requests=16, shares_prefix=False),
    _S5,
    closed("prefill", num_requests=4, concurrency=1, words=1024, max_tokens=16),
    *(closed(f"streams-{number}", number, number, words=32, max_tokens=64) for number in STREAMS),
    _LONG,
    *(_context(name, words) for name, words in CONTEXTS.items()),
)


def scenarios(max_model_len: int, scale: float = 1.0) -> dict[str, Scenario]:
    """The scenarios by name that a model with this context length has room for."""
    found = {}
    for scenario in _ALL:
        if scenario.prefix_words == LONG_PREFIX and max_model_len <= SHORT_CONTEXT:
            scenario = replace(scenario, prefix_words=SHORT_PREFIX)  # noqa: PLW2901
        if scenario.num_tokens <= max_model_len:
            found[scenario.name] = scenario.scaled(scale)
    return found
