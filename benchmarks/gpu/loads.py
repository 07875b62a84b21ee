"""The loads of a check on a GPU."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.scenarios import S2, Scenario, closed

CONCURRENCIES = (1, 8, 32, 128)

SINGLE = closed("single", 3, 1, 128, 128)

STAGGERED = replace(S2, name="staggered")

OFFLINE = closed("offline", 128, 128, 256, 64)

CONCURRENT = tuple(closed(f"c{n}", max(4, n), n, 1024, 256) for n in CONCURRENCIES)

SHARED = replace(closed("shared", 64, 32, 64, 64), prefix_words=2048, shares_prefix=True)

UNSHARED = replace(SHARED, name="unshared", shares_prefix=False)

INTERFERE = Scenario(
    name="interfere",
    kind="interfere",
    num_requests=16,
    concurrency=16,
    prompt_words=(64, 64),
    max_tokens=512,
    start_after=32,
    long_words=16_000,
)

WARM_UP = closed("warm-up", 12, 12, 40, 8)


def fit(scenario: Scenario, *, tiny: bool) -> Scenario:
    """The scenario, or if ``tiny`` a version that takes a CPU seconds."""
    if not tiny:
        return scenario
    concurrency = min(scenario.concurrency, 4)
    return replace(
        scenario,
        num_requests=concurrency if scenario.kind != "open" else 4,
        concurrency=concurrency,
        prompt_words=(min(scenario.prompt_words[0], 16), min(scenario.prompt_words[1], 16)),
        max_tokens=min(scenario.max_tokens, 12),
        prefix_words=min(scenario.prefix_words, 40),
        start_after=min(scenario.start_after, 3),
        long_words=min(scenario.long_words, 60),
    )
