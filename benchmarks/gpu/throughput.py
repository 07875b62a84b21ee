"""Loads on an engine in this process, with the floors of their figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from benchmarks.floors import Cost, Machine, floors
from benchmarks.gpu import loads, rates
from benchmarks.gpu.drive import drive
from benchmarks.gpu.options import LARGE, Options
from benchmarks.gpu.products import products
from benchmarks.gpu.rows import Row, row_of
from benchmarks.scenarios import Scenario
from core.assembly.build import LoadedEngine
from core.contract.config import Quantization
from core.contract.errors import ModelLoadError


def gpt2(options: Options) -> Iterator[Row]:
    """Requests 20 ms apart, all at once, and one at a time."""
    scenarios = (loads.STAGGERED, loads.OFFLINE, loads.SINGLE)
    yield from _run_all(options, "gpt2", scenarios)


def small(options: Options) -> Iterator[Row]:
    """A small model: one stream, and all requests at once."""
    yield from _run_all(options, "qwen3-0.6b", (loads.SINGLE, loads.OFFLINE))


def large(options: Options) -> Iterator[Row]:
    """A large model: 1, 8, 32 and 128 streams."""
    yield from _run_all(options, LARGE, (loads.SINGLE, *loads.CONCURRENT))


def shared(options: Options) -> Iterator[Row]:
    """A common prefix, and a long prompt that arrives while other requests stream."""
    yield from _run_all(options, LARGE, (loads.SHARED, loads.UNSHARED, loads.INTERFERE))
    if options.device == "cuda":
        for row in _run_all(options, LARGE, (loads.INTERFERE,), prefill_chunk_size=512):
            yield row | {"name": row["name"] + ", chunks of 512"}


def fp8(options: Options) -> Iterator[Row]:
    """The large model with an fp8 KV cache."""
    if options.device != "cuda":
        yield {"name": "fp8", "skipped": "needs CUDA"}
        return
    for row in _run_all(options, LARGE, loads.CONCURRENT[-2:], kv_cache_dtype="fp8"):
        yield row | {"name": row["name"] + ", fp8 cache"}


def weights(options: Options) -> Iterator[Row]:
    """Products with 8-bit matrices, and the large model with each format of weights."""
    yield from products(options)
    for quantization in get_args(Quantization):
        kind = options.dtype() if quantization == "none" else quantization
        try:
            scenarios = (loads.SINGLE, loads.CONCURRENT[2])
            for row in _run_all(options, LARGE, scenarios, quantization=quantization):
                yield row | {"name": f"{row['name']}, {kind} weights"}
        except ModelLoadError as error:
            yield {"name": f"{kind} weights", "skipped": str(error)}


def _run_all(
    options: Options, name: str, scenarios: tuple[Scenario, ...], **limits: Any
) -> Iterator[Row]:
    limit = rates.measure(options)
    cost = options.cost(
        name,
        has_fp8_cache=limits.get("kv_cache_dtype") == "fp8",
        quantization=limits.get("quantization", "none"),
    )
    with options.engine(name, **limits) as loaded:
        drive(loaded, loads.fit(loads.WARM_UP, tiny=options.tiny), seed="warm-up")
        for scenario in scenarios:
            load = loads.fit(scenario, tiny=options.tiny)
            yield {"name": f"{name} {load.name}", **_run(loaded, cost, load, limit)}


def _run(loaded: LoadedEngine, cost: Cost, scenario: Scenario, limit: Machine) -> Row:
    """The figures of a run and their floors."""
    row = row_of(drive(loaded, scenario, seed=scenario.name))
    out = scenario.max_tokens
    context = scenario.mean_prompt + scenario.prefix_words + out / 2
    shared_words = scenario.prefix_words if scenario.shares_prefix else 0
    batch = min(scenario.concurrency, scenario.num_requests)
    step = cost.weights() + cost.decode(batch, context - shared_words, shared_words)
    row["step_floor_ms"] = 1e3 * step.seconds(limit)
    row["step_ratio"] = row["itl_p50_ms"] / row["step_floor_ms"]
    return row | {f"floor_{key}": value for key, value in floors(scenario, cost, limit).items()}
