"""Measure an engine for the simulation: the times of its steps, and scenarios to compare with.

    python -m benchmarks.fleet.measure OUT --random-model qwen3-0.6b [--scenarios s1,s2,s4]

Writes the machine's file OUT.json, and OUT.jsonl with a line for each scenario. Times steps of 1,
2, 4, ... streams with short contexts, of few streams with long ones, and of one prompt's tokens, at
its start and far inside it: each is the median of several, in this process and without HTTP.
Nothing else may run on the machine meanwhile. Then

    python -m benchmarks.fleet validate --machine OUT.json --results OUT.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.random_model import cached_random_model
from benchmarks.fleet.machine import Machine
from benchmarks.fleet.meter import Meter
from benchmarks.fleet.origin import Origin, origin_of
from benchmarks.gpu.drive import drive
from benchmarks.scenarios import scenarios
from core.assembly.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.run.limits import DEFAULT_MAX_NUM_BATCHED_TOKENS, DEFAULT_MAX_STEP_MS


def measure(loaded: LoadedEngine, config: EngineConfig, origin: Origin) -> Machine:
    """Time the engine's steps. Returns them with its limits, as the simulation takes them."""
    info = loaded.info
    device = info.device.partition(":")[0]
    most = config.max_num_batched_tokens or DEFAULT_MAX_NUM_BATCHED_TOKENS[device]
    steps = tuple(Meter(loaded, most).steps())
    return Machine(
        name=origin.name,
        source=origin.source,
        steps=steps,
        stream_knots=tuple(sorted({step.streams for step in steps if step.streams})),
        prompt_knots=tuple(sorted({step.prompt for step in steps if step.prompt})),
        kv_tokens=info.num_kv_tokens,
        max_model_len=info.max_model_len,
        max_num_seqs=info.max_num_seqs,
        max_num_batched_tokens=most,
        max_step_ms=config.max_step_ms or DEFAULT_MAX_STEP_MS[device],
        keys_per_row=origin.keys_per_row,
        prefill_chunk_size=config.prefill_chunk_size,
        block_size=config.block_size,
    )


def run_scenarios(
    loaded: LoadedEngine, names: list[str], model: str
) -> Iterator[dict[str, object]]:
    """Lines as of ``benchmarks.compare``. Each scenario runs twice; the first run warms up."""
    known = scenarios(loaded.info.max_model_len)
    for name in names:
        drive(loaded, known[name], seed="first")
        figures = drive(loaded, known[name], seed="second")
        yield {"kind": "run", "scenario": name, "scale": 1.0, "model": model} | figures


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="path of both files, without their endings")
    parser.add_argument("--random-model", default="qwen3-0.6b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kv-cache-memory", type=int, help="bytes")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--scenarios", default="s1,s2,s3,s4,s5")
    parser.add_argument("--name", help="what and where it is, for people")
    return parser.parse_args()


def _beside(out: Path, ending: str) -> Path:
    """``out`` with an ending. A dot in the name of a model begins none."""
    return out.with_name(out.name + ending)


def main() -> None:
    options = _options()
    model = options.random_model
    path = cached_random_model(model)
    config = EngineConfig(
        max_num_seqs=options.max_num_seqs,
        kv_cache_memory=options.kv_cache_memory,
        threads=options.threads,
    )
    where = ModelConfig(model=str(path), device=options.device, dtype=options.dtype)
    loaded = load_engine(where, config)
    name = options.name or f"{model} in {options.dtype}, {options.device}"
    machine = measure(loaded, config, origin_of(name, path))
    text = msgspec.json.format(msgspec.json.encode(machine), indent=1)
    _beside(options.out, ".json").write_bytes(text + b"\n")
    for step in machine.steps:
        print(step, flush=True)
    with _beside(options.out, ".jsonl").open("w", encoding="utf-8") as file:
        for line in run_scenarios(loaded, options.scenarios.split(","), model):
            print(json.dumps(line), file=file, flush=True)
            print(line["scenario"], line["tok_s"], flush=True)


if __name__ == "__main__":
    main()
