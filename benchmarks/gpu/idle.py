"""The time between a step's last kernel and the next step's first one, from a profiler trace."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from typing import Any

from bench.words import random_prompt
from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row
from core.assembly.build import LoadedEngine
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams

NUM_STEPS = 40


VARIANTS: dict[str, dict[str, Any]] = {
    "graphs, async": {},
    "graphs": {"async_scheduling": False},
    "eager, async": {"enforce_eager": True},
    "eager": {"enforce_eager": True, "async_scheduling": False},
}
"""With and without CUDA graphs and async scheduling."""


def idle(options: Options) -> Iterator[Row]:
    for name, num_seqs in (("gpt2", 1), ("qwen3-0.6b", 8)):
        for variant, limits in VARIANTS.items():
            with options.engine(name, **limits) as loaded:
                row = _measure(loaded, options, num_seqs)
            yield {"name": f"{name}, {num_seqs} streams, {variant}", **row}


def _measure(loaded: LoadedEngine, options: Options, num_seqs: int) -> Row:
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - slow to import

    rng, engine = random.Random(0), loaded.engine
    params = SamplingParams(max_tokens=NUM_STEPS * 3, temperature=0.0, ignore_eos=True)
    for i in range(num_seqs):
        ids = loaded.tokenizer.encode(random_prompt(rng, 32), add_special_tokens=True)
        engine.add(EngineRequest(request_id=str(i), prompt_token_ids=tuple(ids), params=params))
    for _ in range(NUM_STEPS // 2):
        engine.step()
    is_cuda = options.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]) as trace:
        for _ in range(NUM_STEPS):
            engine.step()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in trace.events()
        if ("CUDA" in str(event.device_type)) == is_cuda
    )
    engine.fail_all("measured")
    if not spans:
        return {"skipped": "the profiler recorded no kernels"}
    return gaps(spans, NUM_STEPS)


def gaps(spans: list[tuple[float, float]], num_steps: int) -> Row:
    """The idle time between the first and the last span; spans are (start, end) in microseconds.

    The ``num_steps - 1`` largest gaps count as the gaps between steps.
    """
    between, end = [], spans[0][1]
    for start, stop in spans:
        if start > end:
            between.append(start - end)
        end = max(end, stop)
    total = end - spans[0][0]
    largest = sorted(between, reverse=True)[: num_steps - 1]
    return {
        "step_ms": total / num_steps / 1e3,
        "idle_share": sum(between) / total,
        "gap_between_steps_ms": statistics.median(largest) / 1e3 if largest else 0.0,
    }
