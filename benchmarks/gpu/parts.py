"""The parts of a check on a GPU; each gives its results row by row, as they come."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, get_args

import torch

from benchmarks.floors import Cost, Machine, floors
from benchmarks.gpu import checks, http, loads, rates
from benchmarks.gpu.drive import drive
from benchmarks.gpu.idle import idle
from benchmarks.gpu.options import Options
from benchmarks.gpu.peer import Peer
from benchmarks.gpu.products import products
from benchmarks.gpu.sampling import sampling
from benchmarks.scenarios import Scenario
from core.build import LoadedEngine
from core.contract.config import Quantization
from core.contract.errors import ModelLoadError

Row: TypeAlias = dict[str, Any]

LARGE = "qwen3-8b"

TESTS = Path(__file__).parents[2] / "tests"


def tests(options: Options) -> Iterator[Row]:
    """``pytest -m gpu``, over the files that have such tests."""
    missing = [name for name in ("pytest", "hypothesis") if not importlib.util.find_spec(name)]
    if missing:
        yield {"name": "pytest -m gpu", "skipped": f"not installed: {', '.join(missing)}"}
        return
    files = [str(file) for file in TESTS.rglob("test_*.py") if "mark.gpu" in file.read_text()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    # what other versions of libraries warn of is no failure here
    command += ["-W", "default", *files]
    if options.tiny:
        command += ["--collect-only"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent)
    for line in done.stdout.splitlines()[-30:]:
        print("   ", line, file=sys.stderr)
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    yield {"name": "pytest -m gpu", "ok": done.returncode == 0, "says": " ".join(last)}


def machine(options: Options) -> Iterator[Row]:
    """What the device is, and its limits, which floors follow from."""
    found = rates.measure(options)
    row: Row = {"name": "limits", "torch": torch.__version__}
    if options.device == "cuda":
        row |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    yield row | {"copy_gbs": found.read_rate / 1e9, "tflops": found.operation_rate / 1e12}


def gpt2(options: Options) -> Iterator[Row]:
    """Requests 20 ms apart, all at once, and one at a time."""
    scenarios = (loads.STAGGERED, loads.OFFLINE, loads.SINGLE)
    yield from _in_process(options, "gpt2", scenarios)


def small(options: Options) -> Iterator[Row]:
    """One stream of a small model."""
    yield from _in_process(options, "qwen3-0.6b", (loads.SINGLE, loads.OFFLINE))


def large(options: Options) -> Iterator[Row]:
    """1, 8, 32 and 128 streams of a large one."""
    yield from _in_process(options, LARGE, (loads.SINGLE, *loads.CONCURRENT))


def shared(options: Options) -> Iterator[Row]:
    """A prefix that requests share, and a long prompt beside streams."""
    yield from _in_process(options, LARGE, (loads.SHARED, loads.UNSHARED, loads.INTERFERE))
    if options.device == "cuda":
        for row in _in_process(options, LARGE, (loads.INTERFERE,), prefill_chunk_size=512):
            yield row | {"name": row["name"] + ", chunks of 512"}


def fp8(options: Options) -> Iterator[Row]:
    """The large model with an fp8 KV cache."""
    if options.device != "cuda":
        yield {"name": "fp8", "skipped": "needs CUDA"}
        return
    for row in _in_process(options, LARGE, loads.CONCURRENT[-2:], kv_cache_dtype="fp8"):
        yield row | {"name": row["name"] + ", fp8 cache"}


def weights(options: Options) -> Iterator[Row]:
    """Products with matrices in 8 bits, and the large model with such, beside its own type."""
    yield from products(options)
    for quantization in get_args(Quantization):
        kind = options.dtype() if quantization == "none" else quantization
        try:
            scenarios = (loads.SINGLE, loads.CONCURRENT[2])
            for row in _in_process(options, LARGE, scenarios, quantization=quantization):
                yield row | {"name": f"{row['name']}, {kind} weights"}
        except ModelLoadError as error:
            yield {"name": f"{kind} weights", "skipped": str(error)}


def gaps(options: Options) -> Iterator[Row]:
    """How long the device waits between steps."""
    yield from idle(options, "gpt2", 1)
    yield from idle(options, "qwen3-0.6b", 8)


def peer(options: Options) -> Iterator[Row]:
    """transformers' continuous batching, under the loads that come all at once."""
    for name, scenarios in (("gpt2", (loads.OFFLINE,)), (LARGE, loads.CONCURRENT)):
        model = Peer(options, name)
        for scenario in scenarios:
            what = loads.fit(scenario, tiny=options.tiny)
            if what.num_requests > what.concurrency:
                what = loads.closed(what.name, what.concurrency, what.concurrency, 1024, 256)
                what = loads.fit(what, tiny=options.tiny)
            try:
                yield {"name": f"{name} {what.name}", **_short(model.run(what, seed="peer"))}
            except Exception as error:  # noqa: BLE001 - it is not ours; the others can still run
                yield {"name": f"{name} {what.name}", "skipped": f"{type(error).__name__}: {error}"}
        model.close()


def over_http(options: Options) -> Iterator[Row]:
    """The loads of the other parts, through the server."""
    missing = http.missing()
    if missing:
        yield {"name": "http", "skipped": f"not installed: {', '.join(missing)}"}
        return
    for name, scenarios in (
        ("gpt2", (loads.STAGGERED, loads.OFFLINE, loads.SINGLE)),
        (LARGE, loads.CONCURRENT),
    ):
        with http.served(options, name) as server:
            server.measure(loads.fit(loads.WARM_UP, tiny=options.tiny), seed="warm-up")
            for scenario in scenarios:
                what = loads.fit(scenario, tiny=options.tiny)
                yield {"name": f"{name} {what.name}", **_short(server.measure(what, seed="http"))}


PARTS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "tests": tests,
    "machine": machine,
    "attention": checks.attention,
    "texts": checks.texts,
    "sampling": sampling,
    "memory": checks.memory,
    "gpt2": gpt2,
    "small": small,
    "large": large,
    "shared": shared,
    "fp8": fp8,
    "weights": weights,
    "gaps": gaps,
    "peer": peer,
    "http": over_http,
}
"""In the order in which they are worth most."""


def _in_process(
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
            what = loads.fit(scenario, tiny=options.tiny)
            yield {"name": f"{name} {what.name}", **_run(loaded, cost, what, limit)}


def _run(loaded: LoadedEngine, cost: Cost, scenario: Scenario, limit: Machine) -> Row:
    """The figures of a run, and what they could be at best."""
    row = _short(drive(loaded, scenario, seed=scenario.name))
    out = scenario.max_tokens
    context = scenario.mean_prompt + scenario.prefix_words + out / 2
    shared_words = scenario.prefix_words if scenario.shares_prefix else 0
    batch = min(scenario.concurrency, scenario.num_requests)
    step = cost.weights() + cost.decode(batch, context - shared_words, shared_words)
    row["step_floor_ms"] = 1e3 * step.seconds(limit)
    row["step_ratio"] = row["itl_p50_ms"] / row["step_floor_ms"]
    return row | {f"floor_{key}": value for key, value in floors(scenario, cost, limit).items()}


_TOLD = (
    "tok_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_p50_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "itl_max_ms",
    "num_errors",
    "first_error",
    "num_cached_tokens",
    "wall_s",
    "long_ttft_ms",
    "gap_quiet_p50_ms",
    "gap_p50_ms",
    "gap_max_ms",
)


def _short(found: Row) -> Row:
    """The figures that are told."""
    row = {key: found[key] for key in _TOLD if found.get(key) is not None}
    return row | {"ok": found["num_errors"] == 0 and found["num_ended"] == found["num_sent"]}
