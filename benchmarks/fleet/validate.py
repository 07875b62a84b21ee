"""One simulated replica beside a real one, under the scenarios of benchmarks/scenarios.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.figures import percentile
from benchmarks.fleet.machine import Machine
from benchmarks.fleet.request import Request
from benchmarks.fleet.scenario_load import simulate_scenario
from benchmarks.fleet.simulate import Outcome
from benchmarks.scenarios import scenarios

KEYS = ("tok_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "long_ttft_ms", "num_cached_tokens")
"""Figures of benchmarks/load.py that are compared."""


class Row(NamedTuple):
    """A figure of a scenario: what was measured (a median), and what the simulation says."""

    scenario: str
    key: str
    measured: float
    simulated: float

    @property
    def deviation(self) -> float:
        return self.simulated / self.measured - 1


def validate(
    machine: Machine, runs: Sequence[dict[str, Any]], names: Sequence[str]
) -> Iterator[Row]:
    """Compare with measured runs, as lines of ``benchmarks.compare``, of the same machine.

    Runs that were cut or had errors do not count.
    """
    known = scenarios(machine.max_model_len)
    for name in names:
        good = [
            run
            for run in runs
            if run["scenario"] == name and not run["is_cut"] and not run["num_errors"]
        ]
        if not good:
            continue
        outcome, long = simulate_scenario(machine, known[name])
        simulated = figures(outcome, long)
        for key in KEYS:
            values = [run[key] for run in good if run.get(key)]
            if values and simulated.get(key):
                yield Row(name, key, statistics.median(values), simulated[key])


def figures(outcome: Outcome, long: Request | None) -> dict[str, float]:
    """The figures of a simulated run, as ``benchmarks.load`` computes them."""
    requests = outcome.requests
    begin = min(request.arrival for request in requests)
    seconds = max(request.end for request in requests) - begin
    tpot = [request.tpot for request in requests if request.num_output > 1]
    found = {
        "tok_s": sum(request.num_output for request in requests) / seconds,
        "ttft_p50_ms": 1e3 * outcome.ttft(50),
        "ttft_p99_ms": 1e3 * outcome.ttft(99),
        "tpot_p50_ms": 1e3 * percentile(tpot, 50),
        "num_cached_tokens": float(sum(request.num_cached for request in requests)),
    }
    if long is not None:
        found["long_ttft_ms"] = 1e3 * long.ttft
    return found
