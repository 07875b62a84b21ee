"""Simulate replicas behind a front: hit rate, TTFT and goodput by routing policy.

    python -m benchmarks.fleet compare --replicas 1,10,100,1000
    python -m benchmarks.fleet validate
    python -m benchmarks.fleet fit
    python -m benchmarks.fleet chart --out docs/images/fleet.svg

``compare`` prints a line for each combination of ``--replicas``, ``--policies`` and ``--sessions``
(conversations that begin in a minute for each replica). ``validate`` compares one simulated replica
with the scenarios that were measured on the same machine. ``fit`` shows how far the fitted step
times are from the measured ones. ``chart`` draws goodput over load. ``--machine`` is the file of a
replica's step times. The same arguments always give the same figures. docs/sizing.md reads them.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.fleet import chart
from benchmarks.fleet.compare import HEAD, Line, cases_of, run_case, table_row
from benchmarks.fleet.conversations import Load
from benchmarks.fleet.machine import Machine, errors, read_machine
from benchmarks.fleet.simulate import Goal, Span
from benchmarks.fleet.validate import validate
from benchmarks.lines import machine_names, read_lines
from benchmarks.results import rounded

MACHINES = Path(__file__).parent / "machines"
DEFAULT_MACHINE = MACHINES / "h100-qwen3-8b.json"


def compare(options: argparse.Namespace) -> None:
    machine = read_machine(options.machine)
    print(table_row(HEAD))
    print(table_row("-" for _ in HEAD))
    num_events, seconds = 0, 0.0
    for line in _simulated(options, machine, options.replicas):
        print(table_row(line.cells()), flush=True)
        num_events += line.num_events
        seconds += line.cpu_seconds
    print(f"\n{num_events:,} events in {seconds:.1f} s of CPU time: {num_events / seconds:,.0f}/s")


def check_fit(options: argparse.Namespace) -> None:
    machine = read_machine(options.machine)
    print(machine.step_times())
    for step, error in errors(machine):
        what = f"{step.streams} streams of {step.context:g}, {step.prompt} prompt tokens"
        print(f"{what} at {step.start}: {step.ms:g} ms, fitted {error:+.0%} {step.note}")


def compare_scenarios(options: argparse.Namespace) -> None:
    beside = options.machine.with_suffix(".jsonl")
    lines = read_lines([options.results or beside])
    machines = machine_names(lines)
    runs = [
        line
        for line in lines
        if line["kind"] == "run"
        and line["scale"] == 1.0
        and line["model"] == (options.model or line["model"])
        and line.get("contender", options.contender) == options.contender
        and options.on in machines.get(line.get("session", ""), options.on)
    ]
    print(table_row(("scenario", "figure", "measured", "simulated", "deviation")))
    print(table_row("-" * 5))
    for row in validate(read_machine(options.machine), runs, options.scenarios):
        shown = rounded(row.measured), rounded(row.simulated), f"{row.deviation:+.0%}"
        print(table_row((row.scenario, row.key, *shown)))


def draw(options: argparse.Namespace) -> None:
    machine = read_machine(options.machine)
    lines = list(_simulated(options, machine, options.replicas[:1]))
    options.out.write_text(chart.chart(lines, machine.name, _goal(options)), "utf-8")
    print(f"wrote {options.out}")


def _simulated(
    options: argparse.Namespace, machine: Machine, replicas: Sequence[int]
) -> Iterator[Line]:
    load = Load(
        rate=1.0,  # run_case sets the rate of each case
        burst=options.burst,
        alike=options.alike,
        kinds=options.kinds,
        system=options.system,
        turns=options.turns,
        max_model_len=machine.max_model_len,
    )
    span = Span(warm_up=options.warm_up, measured=options.seconds)
    for case in cases_of(replicas, options.policies, options.sessions):
        yield run_case(case, machine, load, span, _goal(options), options.seed)


def _goal(options: argparse.Namespace) -> Goal:
    return Goal(ttft=options.ttft, tpot=options.tpot_ms / 1e3)


def _listed(convert: Callable[[str], object]) -> Callable[[str], list[object]]:
    return lambda text: [convert(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    add = parser.add_argument
    add("--machine", type=Path, default=DEFAULT_MACHINE)
    add("--replicas", type=_listed(int), default=[16])
    add(
        "--policies",
        type=_listed(str),
        default=["round-robin", "least-loaded", "session-hash", "bounded"],
    )
    add("--sessions", type=_listed(float), default=[40.0])
    add("--warm-up", type=float, default=120.0, help="seconds that do not count")
    add("--seconds", type=float, default=120.0, help="seconds that count")
    add("--ttft", type=float, default=1.0, help="seconds to the first token of a good request")
    add("--tpot-ms", type=float, default=50.0, help="milliseconds per token of a good request")
    add("--burst", type=float, default=8.0, help="conversations of a burst")
    add("--alike", type=float, default=0.0, help="part of bursts with one first message")
    add("--kinds", type=int, default=16, help="different system prompts")
    add("--system", type=int, default=1500, help="tokens of a system prompt")
    add("--turns", type=float, default=10.0, help="turns of a conversation")
    add("--seed", type=int, default=0)
    add("--results", type=Path, help="measured runs; by default the file beside the machine's")
    add("--model", help="of the results, if there are several")
    add("--contender", default="roseinfer")
    add("--on", default="amx_bf16", help="a feature of the measured machine's CPU")
    add("--scenarios", type=_listed(str), default=["s1", "s2", "s3", "s4", "s5", "streams-8"])
    add("--out", type=Path, default=Path("docs/images/fleet.svg"))
    return parser


COMMANDS = {
    "compare": compare,
    "validate": compare_scenarios,
    "fit": check_fit,
    "chart": draw,
}


def main() -> None:
    options = _parser().parse_args()
    gc.disable()  # the simulation makes no cycles, so collections would only take time
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
