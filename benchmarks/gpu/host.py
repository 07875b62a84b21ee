"""The time of a prompt's step, with graphs and eagerly, and which functions of the host take it."""

from __future__ import annotations

import cProfile
import pstats
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.words import random_prompt
from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row
from core.assembly.build import LoadedEngine
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams

NUM_PROMPTS = 12
NUM_FUNCTIONS = 12

VARIANTS: dict[str, dict[str, Any]] = {"graphs": {}, "eager": {"enforce_eager": True}}

PROMPTS = (32, 120, 400)
"""Words of each prompt; a word is about a token."""


def host(options: Options) -> Iterator[Row]:
    """Milliseconds of a prompt's step, and where the host spends those of the shortest."""
    for variant, limits in VARIANTS.items():
        with options.engine("qwen3-0.6b", async_scheduling=False, **limits) as loaded:
            for words in PROMPTS[:1] if options.tiny else PROMPTS:
                times, profile = _prompts(loaded, words)
                row: Row = {"name": f"prompt of {words}, {variant}"}
                row |= {"step_ms": 1e3 * statistics.median(times)}
                if words == PROMPTS[0]:
                    row["functions"] = _functions(profile)
                yield row


def _prompts(loaded: LoadedEngine, words: int) -> tuple[list[float], cProfile.Profile]:
    """Seconds of the steps of a prompt each; the second half runs in the profile."""
    engine, rng, times = loaded.engine, random.Random(words), []
    params = SamplingParams(max_tokens=1, temperature=0.0)
    profile = cProfile.Profile()
    for i in range(2 * NUM_PROMPTS):
        ids = loaded.tokenizer.encode(random_prompt(rng, words), add_special_tokens=True)
        engine.add(EngineRequest(request_id=str(i), prompt_token_ids=tuple(ids), params=params))
        if i < NUM_PROMPTS:
            start = time.perf_counter()
            _drain(loaded)
            times.append(time.perf_counter() - start)
        else:
            profile.runcall(_drain, loaded)
    return times, profile


def _drain(loaded: LoadedEngine) -> None:
    while loaded.engine.has_work:
        loaded.engine.step()


def _functions(profile: cProfile.Profile) -> list[str]:
    """The functions with most time of their own, and milliseconds and calls a step."""
    stats: Any = pstats.Stats(profile)
    ranked = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:NUM_FUNCTIONS]
    return [
        f"{function[2]} {1e3 * own / NUM_PROMPTS:.2f} ms {calls / NUM_PROMPTS:.0f}x"
        for function, (_, calls, own, _, _) in ranked
    ]
