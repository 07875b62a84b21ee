"""CPU time of the event loop and the core thread per streamed token."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable

import uvloop

from benchmarks.front_end.child import Child
from benchmarks.front_end.client import read_streams, request_bytes
from benchmarks.front_end.paced import MARGIN, load_paced
from server.cli.main import run
from server.cli.program import exit_process
from server.settings.settings import parse_settings


def measure(options: argparse.Namespace) -> None:
    if options.tokens <= 2 * MARGIN:  # no step would count
        raise SystemExit(f"--tokens must be more than {2 * MARGIN}: the margins do not count")
    child = Child("serve-paced", f"--streams={options.streams}", f"--step-ms={options.step_ms}")
    try:
        url = child.read_url()
        request = request_bytes(options.endpoint, options.tokens)
        rounds = []
        for _ in range(options.rounds + 1):
            uvloop.run(read_streams(url, request, options.streams))
            rounds.append(json.loads(child.read(r"^(\{.*)")))
    finally:
        child.stop()
    print(f"{options.endpoint}, {options.streams} streams, a step every {options.step_ms} ms")
    for name, value in figures(rounds[1:], options.streams):  # the first round is a warm-up
        print(f"  {name:42} {value:8.2f}")


def figures(rounds: list[dict[str, float]], num_streams: int) -> Iterable[tuple[str, float]]:
    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, rounds))

    def per_token(name: str) -> float:
        return median(lambda r: r[name] / (r["num_steps"] * num_streams))

    yield "loop CPU per token, µs", 1e6 * per_token("loop_cpu")
    yield "loop wake-ups per step", median(lambda r: r["loop_sleeps"] / r["num_steps"])
    yield "socket writes per token", per_token("loop_writes")
    yield "core CPU per token, text only, µs", 1e6 * per_token("text_cpu")
    yield "core CPU per token, all of the thread, µs", 1e6 * per_token("core_cpu")


def serve(options: argparse.Namespace) -> None:
    settings = parse_settings(["serve", "--port=0", "--log-level=warning"])
    exit_process(run(settings, lambda: load_paced(options.streams, options.step_ms / 1e3)))
