"""Which goals the published results of one machine meet: two cores of a CPU, all through HTTP.

    python -m benchmarks.goals [results.jsonl ...]

Prints a table, which ``benchmarks.publish`` puts into RESULTS.md. The machine is the one with two
cores on which a load of a goal was measured last. A goal is met if all its bars are: a share of the
limit, a ratio to another server, or a value. All figures count as they are shown, rounded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from benchmarks.chart import DEFAULT_RESULTS, MODELS
from benchmarks.lines import Line, machine_name, read_lines
from benchmarks.newest import commit_of, newest
from benchmarks.results import (
    DASH,
    FIGURES,
    STREAMS,
    US,
    Cell,
    Figure,
    Results,
    Share,
    failures_of,
    groups_of,
    rounded,
)
from benchmarks.table import markdown

BEGIN = "<!-- begin: made by benchmarks/goals.py -->"

FILE = "gguf"
"""The weights of a model that is a GGUF file itself."""

CORES = 2
"""Of the machines that the goals are for."""


@dataclass(frozen=True)
class OfLimit:
    """At least this share of the limit. More than all of it shows that the limit is wrong."""

    share: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f}% of the limit"

    def reached(self, place: Place) -> bool | None:
        share = place.share
        if share is None or share.is_old or round(100 * share.value) > 100:
            return None
        return round(100 * share.value) >= round(100 * self.share)


@dataclass(frozen=True)
class Times:
    """At least so many times as good as ``other``, by default the best peer."""

    ratio: float
    other: str | None = None

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x {self.other or 'the best'}"

    def reached(self, place: Place) -> bool | None:
        found = place.against(self.other)
        return None if found is None else round(found.ratio, 2) >= round(self.ratio, 2)


@dataclass(frozen=True)
class Value:
    """At most this time, or at least this rate."""

    value: float

    def __str__(self) -> str:
        return rounded(self.value)

    def reached(self, place: Place) -> bool | None:
        return place.figure.ratio(_as_shown(place.cell.value), self.value) >= 1


Bar: TypeAlias = OfLimit | Times | Value


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a figure of one of our servers shall reach. ``kind``: its weights, if quantized.

    ``instead``: a smaller scenario that counts if the run of the figure's was cut.
    """

    model: str
    figure: Figure
    bars: tuple[Bar, ...]
    kind: str = ""
    instead: str | None = None

    @property
    def us(self) -> str:
        return f"{US} {self.kind}".strip()


class Other(NamedTuple):
    """Another server's figure, and ours in relation to it; above 1 if ours is better.

    ``by_shares`` is the ratio of the shares of the limit, where the probes show other memory.
    """

    name: str
    cell: Cell
    ratio: float
    is_same_memory: bool
    by_shares: float | None

    def __str__(self) -> str:
        mark = "" if self.is_same_memory else "≈"
        by_shares = "" if self.by_shares is None else f" ({self.by_shares:.2f}x by shares)"
        return f"{mark}{self.ratio:.2f}x{by_shares}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The runs in which a goal is looked for: those of its model at one scale."""

    results: Results
    scale: float
    us: str
    figure: Figure
    cell: Cell

    @property
    def share(self) -> Share | None:
        """Our share of the limit."""
        return self.results.share(self.us, self.figure)

    @property
    def is_too_low(self) -> bool:
        """Whether ours is a time of a run that was cut."""
        return self.cell.is_cut and not self.figure.is_rate

    def against(self, other: str | None) -> Other | None:
        """This server, by default the best peer with weights of as many bits."""
        if other is None:
            best = self.results.best_peer(self.us, self.figure)
            if best is None:
                return None
            other = best[0]
        cell = self.results.cell(other, self.figure)
        if cell is None or cell.value <= 0:
            return None
        ratio = self.figure.ratio(self.cell.value, cell.value)
        is_same = self.results.is_same_memory(self.us, other, self.figure)
        by_shares = None if is_same else self._by_shares(other)
        return Other(other, cell, ratio, is_same, by_shares)

    def _by_shares(self, other: str) -> float | None:
        """Of the time per token of one stream, which reads weights, and of the same weights."""
        results = self.results
        if self.figure not in (S1, LONG_TPOT) or results.bits(other) != results.bits(self.us):
            return None
        ours, theirs = self.share, results.share(other, self.figure)
        if ours is None or theirs is None or ours.is_old or theirs.is_old:
            return None
        return ours.value / theirs.value


def _figure(scenario: str, key: str) -> Figure:
    return next(f for f in (*FIGURES, *STREAMS) if (f.scenario, f.key) == (scenario, key))


S1, S2, S3 = _figure("s1", "tpot_p50_ms"), _figure("s2", "tok_s"), _figure("s3", "tok_s")
S4, S4_TTFT = _figure("s4", "tok_s"), _figure("s4", "ttft_p99_ms")
S5_GAP, S5_TTFT = _figure("s5", "gap_max_ms"), _figure("s5", "long_ttft_ms")
LONG_TTFT, LONG_TPOT = _figure("long", "ttft_p50_ms"), _figure("long", "tpot_p50_ms")
FILE_TTFT, PREFILL = _figure("s1", "ttft_p50_ms"), _figure("prefill", "ttft_p50_ms")
GPT2, QWEN, SMOL = "gpt2", "qwen3-0.6b", "smollm2"
LLAMA_4, LLAMA_FILE = "llama.cpp q4_k_m", "llama.cpp gguf"


def _goal(model: str, figure: Figure, *bars: Bar, kind: str = "") -> Goal:
    return Goal(model=model, figure=figure, bars=bars, kind=kind)


GOALS = (
    _goal(GPT2, S1, OfLimit(0.9), Times(1.15)),
    _goal(GPT2, S1, OfLimit(0.85), kind="int8"),
    _goal(GPT2, S2, Times(1.3)),
    _goal(GPT2, S2, Times(1.15, US), kind="int8"),
    _goal(GPT2, S3, Times(1.3)),
    _goal(GPT2, S4, Times(1.4)),
    _goal(GPT2, S4_TTFT, Value(300)),
    _goal(GPT2, S5_GAP, Value(50)),
    _goal(GPT2, S5_TTFT, Times(1 / 1.1)),
    _goal(QWEN, S1, OfLimit(0.9), Times(1)),
    _goal(QWEN, S1, OfLimit(0.9), kind="int8"),
    _goal(QWEN, S2, Times(1.25)),
    _goal(QWEN, S2, Times(1.3, US), kind="int8"),
    replace(_goal(QWEN, S3, Times(1.25)), instead="s3-16"),
    _goal(QWEN, LONG_TTFT, Times(1 / 0.8)),
    _goal(QWEN, LONG_TPOT, Times(1 / 0.7)),
    _goal(QWEN, S4, Times(1.3, "vLLM")),
    _goal(QWEN, S5_GAP, Value(150)),
    _goal(QWEN, S1, Times(1.25, LLAMA_4), OfLimit(0.85), kind="q4_k_m"),
    _goal(QWEN, S2, Times(2.2, LLAMA_4), Times(1, f"{US} int8"), kind="q4_k_m"),
    _goal(GPT2, S1, Value(2.9), Times(3.6 / 2.9, LLAMA_4), kind="q4_k_m"),
    _goal(SMOL, S1, Value(4.4), kind=FILE),
    _goal(SMOL, FILE_TTFT, Value(28), kind=FILE),
    _goal(SMOL, _figure("streams-16", "tok_s"), Value(1000), kind=FILE),
    _goal(SMOL, PREFILL, Times(1.3, LLAMA_FILE), kind=FILE),
)
"""GPT-2's time in Q4_K_M is of another machine, whose llama.cpp took 3.6 ms."""


def goals(lines: Sequence[Line]) -> str:
    """The table of the machine that was measured last; empty without results."""
    sessions = {line["session"]: line for line in lines if line["kind"] == "session"}
    last = _last_session(lines, sessions)
    if last is None:
        return ""
    machine = machine_name(sessions[last]["machine"])
    failures = failures_of(lines)
    found = {
        (group.model, group.scale): Results(
            newest(runs, sessions), failures.get((machine, group.model), ())
        )
        for group, runs in groups_of(lines).items()
        if group.machine == machine
    }
    head = ["", "ours", "other", "ratio", "share of the limit", "goal", "result", "runs"]
    rows, dates = [head], dict[str, set[str]]()
    for goal in GOALS:
        place = place_of(goal, found, sessions)
        if place is None:
            name = _name(goal, goal.figure, 1.0)
            rows.append([name, *[DASH] * 4, _bars(goal), "not measured", DASH])
            continue
        ours = place.results.sessions(place.us, place.figure)
        for session in ours:
            dates.setdefault(commit_of(sessions[session], place.us), set()).add(session)
        rows.append(_row(goal, place, sessions))
    return f"{_rounds(machine, dates)}\n\n{markdown(rows)}"


def _last_session(lines: Sequence[Line], sessions: dict[str, Line]) -> str | None:
    """The last one that has a run of ours for a goal, on a machine of its size."""
    loads = {
        (goal.model, goal.us, figure.scenario) for goal in GOALS for figure in _figures_of(goal)
    }
    found = {
        line["session"]
        for line in lines
        if line["kind"] == "run"
        and (line["model"], line["contender"], line["scenario"]) in loads
        and sessions[line["session"]]["machine"]["cores"] == CORES
    }
    return max(found, default=None)


def place_of(
    goal: Goal, found: dict[tuple[str, float], Results], sessions: dict[str, Line]
) -> Place | None:
    """Return the runs that count for a goal, None if there are none.

    Only those of the commit of ours that ran last. Its own scenario comes before the one
    ``instead``, a larger scale before a smaller one, and a run that was not cut before one that
    was.
    """
    places = [
        Place(results=results, scale=scale, us=goal.us, figure=figure, cell=cell)
        for figure in _figures_of(goal)
        for (model, scale), results in sorted(found.items(), key=lambda item: -item[0][1])
        if model == goal.model and (cell := results.cell(goal.us, figure)) and cell.value > 0
    ]
    last = {place: place.results.sessions(place.us, place.figure)[-1] for place in places}
    commit = commit_of(sessions[max(last.values())], goal.us) if places else ""
    latest = [place for place in places if commit_of(sessions[last[place]], goal.us) == commit]
    finished = [place for place in latest if not place.cell.is_cut]
    return next(iter(finished or latest), None)


def _figures_of(goal: Goal) -> Iterator[Figure]:
    yield goal.figure
    if goal.instead is not None:
        yield replace(goal.figure, scenario=goal.instead)


def _row(goal: Goal, place: Place, sessions: dict[str, Line]) -> list[str]:
    results, figure = place.results, place.figure
    named = [bar.other for bar in goal.bars if isinstance(bar, Times)]
    others = [other for name in named or [None] if (other := place.against(name))]
    share = place.share
    ours = results.sessions(place.us, figure)
    runs = [f"{session[:16]} {commit_of(sessions[session], place.us)}" for session in ours]
    for other in others:
        theirs = results.sessions(other.name, figure)
        if theirs != ours:
            runs.append(f"{other.name}: {', '.join(session[:16] for session in theirs)}")
    return [
        _name(goal, figure, place.scale),
        str(place.cell),
        "; ".join(f"{other.cell} {other.name}" for other in others) or DASH,
        "; ".join(map(str, others)) or DASH,
        DASH if share is None else str(share),
        _bars(goal),
        verdict(goal, place, others),
        "; ".join(runs),
    ]


def verdict(goal: Goal, place: Place, others: Sequence[Other]) -> str:
    """Whether the goal is met, which bars are not, and what speaks against the figures."""
    reached = {bar: bar.reached(place) for bar in goal.bars}
    missed = [str(bar) for bar, is_reached in reached.items() if is_reached is False]
    unknown = [bar for bar, is_reached in reached.items() if is_reached is None or place.is_too_low]
    if missed:
        said = f"**missed**: {', '.join(missed)}" if len(reached) > 1 else "**missed**"
    elif unknown:
        are_shares = all(isinstance(bar, OfLimit) for bar in unknown)
        probe = " with this probe" if are_shares and not place.is_too_low else ""
        said = f"not measured{probe}: {', '.join(map(str, unknown))}"
    else:
        said = "met"
    notes = "; ".join(_notes(goal, place, others))
    return f"{said} ({notes})" if notes else said


def _notes(goal: Goal, place: Place, others: Sequence[Other]) -> Iterator[str]:
    """What makes the figures of a goal uncertain; of peers, only if the goal compares with them."""
    ratios = [bar for bar in goal.bars if isinstance(bar, Times)]
    compared = others if ratios else []
    cells = {place.us: place.cell} | {other.name: other.cell for other in compared}
    if cut := [name for name, cell in cells.items() if cell.is_cut]:
        yield f"{', '.join(cut)} cut at the time limit"
    if disturbed := [name for name, cell in cells.items() if cell.is_disturbed]:
        yield f"{', '.join(disturbed)} disturbed"
    is_of_limit = any(isinstance(bar, OfLimit) for bar in goal.bars)
    if is_of_limit and place.share and not place.share.is_steady:
        yield "the run's probes differ"
    if memory := [other.name for other in compared if not other.is_same_memory]:
        yield f"{', '.join(memory)} had other memory"
    is_best = any(bar.other is None for bar in ratios)
    if is_best and (absent := place.results.absent(place.us, place.figure)):
        yield f"{', '.join(absent)} not measured"


def _as_shown(value: float) -> float:
    return float(rounded(value).replace(",", ""))


def _name(goal: Goal, figure: Figure, scale: float) -> str:
    model = MODELS.get(goal.model, goal.model)
    unit = ", ms" if figure.key.endswith("_ms") else ""
    kind = f", {goal.kind}" if goal.kind not in ("", FILE) else ""
    work = "" if scale == 1 else f", {scale:g} of the work"
    return f"{model} {figure.label}{unit}{kind}{work}"


def _bars(goal: Goal) -> str:
    return "; ".join(str(bar) for bar in goal.bars)


def _rounds(machine: str, dates: dict[str, set[str]]) -> str:
    """Whether our runs are of one commit, and when each commit ran."""
    found = [f"{commit} ({min(when)[:16]} to {max(when)[:16]})" for commit, when in dates.items()]
    said = "All of one commit" if len(found) == 1 else "**Not of one round**"
    return f"On {machine}. {said}: {', '.join(found)}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[DEFAULT_RESULTS])
    print(goals(read_lines(parser.parse_args().files)))


if __name__ == "__main__":
    main()
