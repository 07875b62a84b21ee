"""Rounds of a comparison: each contender has one turn per round and runs every scenario in it."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import host
from benchmarks.floors import floors
from benchmarks.peers import BenchModel, Contender, cost_of
from benchmarks.probe import Rates, machine_of, middle_of, probe
from benchmarks.process import DidNotStart
from benchmarks.results import idle_of
from benchmarks.running import Running, running
from benchmarks.scenarios import WARM_UP, Scenario, scenarios
from benchmarks.session import START_SECONDS, Session, strip_paths

BUSY = 0.1
"""Cores. If a server uses more while the machine is probed, the probe finds too low limits."""

ABORT_TIMEOUT = 5.0
"""Seconds a server gets to notice that its clients have disconnected."""

PRINTED = {
    "s1": ("ttft_p50_ms", "tpot_p50_ms"),
    "s2": ("tok_s", "ttft_p99_ms", "tpot_p50_ms", "rss_mb"),
    "s3": ("tok_s", "ttft_p50_ms", "tpot_p50_ms"),
    "s4": ("tok_s", "ttft_p50_ms", "ttft_p99_ms"),
    "s5": ("long_ttft_ms", "gap_quiet_p50_ms", "gap_max_ms"),
    "streams": ("tok_s", "tpot_p50_ms"),
    "prefill": ("ttft_p50_ms",),
    "long": ("ttft_p50_ms", "tpot_p50_ms"),
    "context": (
        *("first_ttft_ms", "first_tpot_ms", "ttft_p50_ms", "tpot_p50_ms", "tok_s"),
        *("num_cached_tokens", "rss_mb"),
    ),
}
"""Figures of the line that is printed for each run."""


def run_rounds(
    session: Session, model: BenchModel, contenders: list[Contender], logs: Path
) -> None:
    """Run all rounds with one model. A contender that does not start has no further turns."""
    active = []
    for contender in contenders:
        reason = contender.missing(model)
        if reason is None:
            active.append(contender)
        else:
            print(f"{model.name}: {contender.name} is skipped: {reason}", flush=True)
    for number in range(session.options.rounds):
        for contender in order_of_round(active, number):
            if contender not in active:
                continue
            try:
                turn(session, contender, model, number, logs / "server.log")
            except DidNotStart as error:
                print(f"{model.name}: {contender.name}: {error}", flush=True)
                message = strip_paths(str(error))
                session.write(
                    "failure",
                    contender=contender.name,
                    model=model.name,
                    weights=contender.weights,
                    message=message,
                )
                active.remove(contender)


def order_of_round(contenders: list[Contender], number: int) -> list[Contender]:
    """Every other round is reversed, so that a slow drift of the machine favours no contender."""
    return contenders[::-1] if number % 2 else contenders[:]


def turn(session: Session, contender: Contender, model: BenchModel, number: int, log: Path) -> None:
    """One contender's scenarios of one round that are not done yet, while there is time.

    Scenarios that need other room for requests have a server of their own. After a cut run the
    server may still compute the cancelled requests. If it is not idle in time, a new server runs
    the other scenarios.
    """
    options = session.options
    left = [
        scenario
        for scenario in _wanted(session, contender, model)
        if session.key(contender, model, scenario.name, number) not in session.done
    ]
    while left:
        if not session.has_time(START_SECONDS + options.limit):
            session.num_left += len(left)
            return
        room = left[0].room
        queue = [scenario for scenario in left if scenario.room == room]
        host.wait_quiet(options.wait_quiet)
        start = time.monotonic()
        with running(contender, model.with_room(room), log) as server:
            server.wait_ready(options.start_timeout)
            start_s = time.monotonic() - start
            _report_warnings(session, server)
            server.run(WARM_UP, scale=1.0, seed=_new_seed(), limit=options.limit)
            known = {"round": number, "start_s": start_s}
            for scenario in queue:
                if not session.has_time(options.limit):
                    break
                left.remove(scenario)
                is_idle = measure(session, server, scenario, known)
                session.done.add(session.key(contender, model, scenario.name, number))
                if not is_idle:
                    break


def _wanted(session: Session, contender: Contender, model: BenchModel) -> list[Scenario]:
    """The scenarios of this contender that the model has room for, in the order of the options."""
    options = session.options
    found = scenarios(model.shape.max_model_len, options.scale)
    wanted = options.variant_scenarios if contender.is_variant else options.scenarios
    return [found[name] for name in options.scenarios if name in wanted and name in found]


@dataclass(frozen=True)
class Probed:
    """A probe of the machine, and the use of its processors from its start to its end."""

    rates: Rates
    before: host.Usage
    after: host.Usage

    @property
    def is_busy(self) -> bool:
        """Whether the server worked meanwhile."""
        seconds = self.after.at - self.before.at
        return self.after.tree - self.before.tree > BUSY * seconds


@dataclass
class Probes:
    """The probes beside a run of the server ``pid``, in order."""

    pid: int
    taken: list[Probed] = field(default_factory=list)

    def take(self) -> None:
        before = host.usage(self.pid)
        self.taken.append(Probed(probe(), before, host.usage(self.pid)))

    @property
    def pauses(self) -> list[tuple[host.Usage, host.Usage]]:
        """The parts of the run in which the machine was probed: all probes but the first."""
        return [(probed.before, probed.after) for probed in self.taken[1:]]


def measure(session: Session, server: Running, scenario: Scenario, known: dict[str, Any]) -> bool:
    """Run a scenario, and repeat it while other processes disturb it. Lines include ``known``.

    The machine is probed before a run, between its requests if it is one of one stream, and after
    it. Its limits are the medians of those that the probes give, without probes during which the
    server was busy if there are others. Returns whether the server has become idle.
    """
    options, contender, model = session.options, server.contender, server.model
    for attempt in range(options.retries + 1):
        is_quiet = host.wait_quiet(options.wait_quiet)
        probes = Probes(server.pid)
        probes.take()
        before = host.usage(server.pid)
        found = server.run(
            scenario.name,
            scale=options.scale,
            seed=_new_seed(),
            limit=options.limit,
            pause=probes.take,
        )
        cpu = host.between(before, host.usage(server.pid), probes.pauses)
        is_idle = not found["is_cut"] or host.wait_quiet(ABORT_TIMEOUT)
        if is_idle:
            probes.take()
        limits = [
            floors(
                scenario,
                cost_of(contender, model),
                machine_of(probed.rates, session.gemm, contender.weights),
            )
            for probed in probes.taken
        ]
        is_busy = [probed.is_busy for probed in probes.taken]
        rates = idle_of([probed.rates for probed in probes.taken], is_busy)
        is_disturbed = cpu["other_cpu_pct"] + cpu["steal_pct"] > options.max_other
        line = {
            "contender": contender.name,
            "model": model.name,
            "scenario": scenario.name,
            "scale": options.scale,
            "attempt": attempt,
            "was_quiet": is_quiet,
            "is_disturbed": is_disturbed,
            "is_variant": contender.is_variant,
            "weights": contender.weights,
            "floors": _medians(idle_of(limits, is_busy)),
            "floors_by_probe": limits,
            "probe": asdict(middle_of(rates)),
            "probes": [asdict(probed.rates) for probed in probes.taken],
            "is_busy_by_probe": is_busy,
            **known,
            **found,
            **cpu,
        }
        session.write("run", **line)
        print(_printed(line), flush=True)
        if not is_disturbed or found["is_cut"]:
            break
    return is_idle


def _medians(limits: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(limit[key] for limit in limits) for key in limits[0]}


def _report_warnings(session: Session, server: Running) -> None:
    contender, model = server.contender.name, server.model.name
    for warning in server.warnings():
        session.write("warning", contender=contender, model=model, message=strip_paths(warning))
        print(f"{contender} warns: {warning}", flush=True)


def _new_seed() -> str:
    """Every run gets its own prompts, so that no prefix cache answers for another run."""
    return str(random.SystemRandom().getrandbits(64))


def _printed(line: dict[str, Any]) -> str:
    """A run in one line."""
    marks = [name for name in ("disturbed", "cut") if line[f"is_{name}"]]
    if any(line["is_busy_by_probe"]):
        marks.append(f"busy in {sum(line['is_busy_by_probe'])} probes")
    if line["num_errors"]:
        marks.append(f"{line['num_errors']} ERRORS: {line['first_error']}")
    reads = [probe["read_gbs"] for probe in line["probes"]]
    shown = []
    for figure in PRINTED.get(line["scenario"].partition("-")[0], ("tok_s",)):
        value, floor = line.get(figure, float("nan")), line["floors"].get(figure)
        limit = f" (floor {floor:.4g})" if floor else ""
        shown.append(f"{figure} {value:.4g}{limit}")
    return (
        f"{line['model']} {line['round'] + 1} {line['contender']} {line['scenario']}: "
        f"{', '.join(shown)}; {line['wall_s']:.1f} s, server {line['server_cpu_pct']:.0f}% "
        f"client {line['client_cpu_pct']:.0f}% other {line['other_cpu_pct']:.0f}% "
        f"steal {line['steal_pct']:.0f}%, probes {min(reads):.0f} to {max(reads):.0f} GB/s"
        f"{' ' + ' '.join(marks).upper() if marks else ''}"
    )
