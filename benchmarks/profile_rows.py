"""Profile: the steps of a load as rows of a table, each part beside the machine's rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.profile_report import KindReport, PartTime
from benchmarks.floors import Machine
from benchmarks.probe import Rates, machine_of, middle_of
from benchmarks.profile_load import Load
from benchmarks.results import STEADY, rounded

LEAST = 0.1
"""A kind of steps that takes a smaller part of the time has no row."""

HEAD = (
    *("load", "steps", "of the time", "memory, GB/s", "ms", "limit, ms", "layers' products"),
    *("output layer", "attention", "rest of the call", "outside of it", "waiting"),
)

NAMES = {"decode": "streams", "mixed": "streams, prompts", "prefill": "prompts"}


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
