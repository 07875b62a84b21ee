"""What the steps of a load spend, beside the limits of the same minute.

    python -m benchmarks.profiles gpt2:s1 gpt2:s1:int8 FILE.gguf:s1 [--scale 0.5]

A load is MODEL:SCENARIO, and a quantization if any. The model is a known shape or a GGUF file, the
scenario one of ``benchmarks/scenarios.py`` with equal requests. Each load has an engine of its own,
in process, and the machine is probed before and after it. Prints Markdown, a row for each kind of
step that takes a tenth of the time: milliseconds of a mean step; of products and attention also the
rate at which they read or multiply, and its share of the probe's. The limit is the time of all of
these at the rates of the probe.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.profile_report import KindReport, PartTime
from bench.shapes import RANDOM_MODELS, random_model_config
from benchmarks.floors import Machine
from benchmarks.probe import Rates, machine_of, middle_of, probe
from benchmarks.process import clean_environment
from benchmarks.results import STEADY, rounded
from benchmarks.scenarios import Scenario, scenarios
from benchmarks.shapes import shape_of_file
from benchmarks.table import markdown
from core.gguf.names import SUFFIX

LEAST = 0.1
"""A kind of steps that takes a smaller part of the time has no row."""

HEAD = (
    *("load", "steps", "of the time", "memory, GB/s", "ms", "limit, ms", "layers' products"),
    *("output layer", "attention", "rest of the call", "outside of it", "waiting"),
)

NAMES = {"decode": "streams", "mixed": "streams, prompts", "prefill": "prompts"}


@dataclass(frozen=True)
class Load:
    """A scenario with a model; its form on the command line is ``name``."""

    name: str
    scenario: Scenario
    flags: tuple[str, ...]
    weights: str

    @classmethod
    def of(cls, name: str, scale: float) -> Load:
        """Raises ValueError for what is no load."""
        model, _, rest = name.partition(":")
        scenario, _, quantization = rest.partition(":")
        is_file = model.endswith(SUFFIX)
        flags = ["--model" if is_file else "--random-model", model]
        if quantization:
            flags += ["--quantization", quantization]
        found = scenarios(_max_model_len(model), scale).get(scenario)
        if found is None or found.kind not in ("closed", "open") or found.is_sampled:
            raise ValueError(f"{name} is no load of equal greedy requests")
        weights = quantization or ("gguf" if is_file else "bfloat16")
        return cls(name.rpartition("/")[2], found, tuple(flags), weights)

    @property
    def command(self) -> list[str]:
        """Flags of ``roseinfer bench``."""
        load = self.scenario
        low, high = load.prompt_words
        if not load.shares_prefix:
            low, high = low + load.prefix_words, high + load.prefix_words
        when = ["--concurrency", str(load.concurrency)]
        if load.kind == "open":
            when = ["--submit-interval-ms", f"{1e3 * load.interval:g}"]
        if load.shares_prefix:
            when += ["--shared-prefix-len", str(load.prefix_words)]
        size = ["--num-requests", str(load.num_requests), "--max-new-tokens", str(load.max_tokens)]
        return [*self.flags, *when, *size, "--prompt-len", f"{low}-{high}"]


@dataclass(frozen=True)
class Profile:
    """The steps of a load, and the machine's limits beside it."""

    load: Load
    kinds: Sequence[KindReport]
    seconds: float
    probes: Sequence[Rates]

    def rows(self) -> Iterator[list[str]]:
        """One for each kind of steps that matters, the longest part of the time first."""
        machine = machine_of(middle_of(self.probes), {}, self.load.weights)
        for kind in sorted(self.kinds, key=_seconds, reverse=True):
            if _seconds(kind) < LEAST * self.seconds:
                continue
            parts = [part for stage in kind.stages for part in stage.parts]
            stages = [part for part in parts if part.waiting_ms is not None]
            work = [part for part in stages if part.gb_s or part.gflop_s]
            head = [part for part in work if part.name == "output layer"]
            attention = [part for part in work if part.name.startswith("attention")]
            layers = [part for part in work if part not in head and part not in attention]
            rest = [part for part in stages if part not in work]
            yield [
                self.load.name,
                f"{NAMES[kind.kind]}: {kind.num_sequences:.0f}, {kind.num_tokens:.0f} tokens",
                f"{_seconds(kind) / self.seconds:.0%}",
                self._memory(),
                rounded(kind.step_ms),
                rounded(_limit_ms(work, machine)),
                *(_cell(group, machine) for group in (layers, head, attention)),
                rounded(_ms(rest)),
                rounded(kind.step_ms - _ms(stages)),
                rounded(sum(kind.waiting_ms) / max(1, len(kind.waiting_ms))),
            ]

    def _memory(self) -> str:
        reads = sorted(rates.read_gbs for rates in self.probes)
        is_steady = reads[-1] <= STEADY * reads[0]
        return f"{sum(reads) / len(reads):.0f}" if is_steady else f"{reads[0]:.0f}-{reads[-1]:.0f}"


def profile_of(load: Load, python: str = sys.executable) -> Profile:
    """Run the load. Raises CalledProcessError if that fails."""
    with tempfile.TemporaryDirectory(prefix="roseinfer-profile-") as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "server", "bench", "--profile", *load.command]
        probes = [probe()]
        subprocess.run(
            [*command, "--json", str(report)],
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        probes.append(probe())
        found = json.loads(report.read_text("utf-8"))
    kinds = msgspec.convert(found["profile"], list[KindReport])
    return Profile(load, kinds, sum(run["client"]["wall_s"] for run in found["runs"]), probes)


def _max_model_len(model: str) -> int:
    if model.endswith(SUFFIX):
        return shape_of_file(Path(model)).max_model_len
    if model not in RANDOM_MODELS:
        raise ValueError(f"{model} is none of {', '.join(RANDOM_MODELS)}")
    return int(random_model_config(model).max_position_embeddings)


def _seconds(kind: KindReport) -> float:
    return kind.num_steps * kind.step_ms / 1e3


def _ms(parts: Sequence[PartTime]) -> float:
    return sum(part.ms for part in parts)


def _limit_ms(parts: Sequence[PartTime], machine: Machine) -> float:
    """The time at the rates of the machine. 1 GB/s makes 10^6 bytes a millisecond."""
    return sum(
        1e9 * part.ms * max(part.gb_s / machine.read_rate, part.gflop_s / machine.operation_rate)
        for part in parts
        if part.gb_s is not None and part.gflop_s is not None
    )


def _cell(parts: Sequence[PartTime], machine: Machine) -> str:
    """Milliseconds, the rate that limits, and its share of the machine's."""
    ms = _ms(parts)
    if not ms:
        return "0"
    read = sum(part.ms * (part.gb_s or 0) for part in parts) / ms
    multiplied = sum(part.ms * (part.gflop_s or 0) for part in parts) / ms
    is_read = read / machine.read_rate > multiplied / machine.operation_rate
    rate = f"{read:.0f} GB/s" if is_read else f"{multiplied:.0f} GFLOP/s"
    return f"{rounded(ms)}: {rate}, {_limit_ms(parts, machine) / ms:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", nargs="+", metavar="MODEL:SCENARIO[:QUANTIZATION]")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the scenarios' work")
    options = parser.parse_args()
    try:
        loads = [Load.of(name, options.scale) for name in options.loads]
    except ValueError as error:
        parser.error(str(error))
    rows = [list(HEAD), *(row for load in loads for row in profile_of(load).rows())]
    print(markdown(rows))


if __name__ == "__main__":
    main()
