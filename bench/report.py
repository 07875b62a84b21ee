"""Report: the results of a benchmark, as text and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from bench.errors import BenchError
from bench.figures import Curves, EngineSummary, Spread, Summary, median_of
from bench.profile_report import KindReport, StageTime
from bench.settings import BenchSettings, ServerTarget

_PACKAGES = ("roseinfer", "torch", "transformers")
_COLUMNS = ("mean", "p50", "p95", "p99", "max")


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run.

    ``cpu_share`` is the CPU time of this process, in cores: 1.0 is one core all the time. It is
    that of the client if a server is measured, else mostly that of the engine. ``curves`` are for
    charts.
    """

    client: Summary
    engine: EngineSummary | None = None
    cpu_share: float
    curves: Curves | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All results. ``median`` holds the median of every number over ``runs``."""

    target: str
    date: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    settings: BenchSettings
    runs: tuple[RunResult, ...]
    median: RunResult
    profile: tuple[KindReport, ...] = ()


def make_report(
    target: str,
    settings: BenchSettings,
    runs: Sequence[RunResult],
    profile: Sequence[KindReport] = (),
) -> Report:
    """Make the report of some runs; ``target`` describes in words what was measured."""
    if isinstance(settings.target, ServerTarget) and settings.target.api_key is not None:
        shown = msgspec.structs.replace(settings.target, api_key="(given)")
        settings = msgspec.structs.replace(settings, target=shown)
    return Report(
        target=target,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=_machine(),
        versions=_versions(),
        settings=settings,
        runs=tuple(runs),
        median=median_of(runs),
        profile=tuple(profile),
    )


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of several levels of concurrency."""

    levels: tuple[Report, ...]


def write_json(results: Report | Sweep, file: Path) -> None:
    """Write all results. Raises BenchError if the file cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(results, enc_hook=str), indent=2)
    try:
        file.write_bytes(text + b"\n")
    except OSError as error:
        raise BenchError(f"cannot write {file}: {error}") from error


def _machine() -> dict[str, str | int]:
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 0,
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def render(report: Report) -> str:
    """Return the report as text."""
    result, client = report.median, report.median.client
    num_runs = len(report.runs)
    lines = [
        report.target,
        describe(report.settings) + (f"; medians of {num_runs} runs" if num_runs > 1 else ""),
        "",
        *_facts(result),
        "",
        *_spreads(
            "client side",
            {
                "submit lag": client.submit_lag_ms,
                "time to first token": client.ttft_ms,
                "time per output token": client.tpot_ms,
                "inter-token latency": client.itl_ms,
                "latency": client.latency_ms,
            },
        ),
    ]
    if result.engine is not None:
        lines += ["", *_engine(result.engine)]
    wall_s = sum(run.client.wall_s for run in report.runs)
    for kind in report.profile:
        lines += ["", *_profile(kind, wall_s)]
    if report.profile:
        share = 1 - sum(map(_seconds, report.profile)) / wall_s
        lines += ["", f"outside of steps: {share:.1%} of the time"]
    return "\n".join(lines)


def render_sweep(levels: Sequence[Report]) -> str:
    """Return a table: a line for each level of concurrency."""
    first = levels[0]
    columns = (
        "in flight",
        "tok/s",
        "requests/s",
        "TTFT p50",
        "TPOT p50",
        "TPOT p95",
        "latency p50",
    )
    lines = [
        first.target,
        describe(first.settings, with_concurrency=False) + "; times in ms",
        "",
        "".join(f"{column:>13}" for column in columns),
    ]
    for report in levels:
        client = report.median.client
        spreads = (client.ttft_ms, client.tpot_ms, client.tpot_ms, client.latency_ms)
        shown = [
            _short(getattr(spread, name)) if spread is not None else "-"
            for spread, name in zip(spreads, ("p50", "p50", "p95", "p50"), strict=True)
        ]
        rates = [f"{client.output_tok_s:.1f}", f"{client.req_s:.2f}"]
        row = [str(report.settings.pace.concurrency), *rates, *shown]
        failed = f"   {client.failed + client.rejected} not answered"
        is_whole = client.completed == client.requests
        lines.append("".join(f"{cell:>13}" for cell in row) + ("" if is_whole else failed))
    return "\n".join(lines)


def describe(settings: BenchSettings, *, with_concurrency: bool = True) -> str:
    """Describe the load in one line."""
    load, pace, sampling = settings.workload, settings.pace, settings.sampling
    low, high = load.length
    if load.dataset is not None:
        prompts = f"of {load.dataset.name}"
    elif load.text is not None:
        prompts = f"of {len(load.text) * load.repeats} characters"
    else:
        prompts = f"of {low} words" if low == high else f"of {low} to {high} words"
    if load.shared_prefix_len:
        prompts += f" after {load.shared_prefix_len} shared ones"
    if pace.rate is not None:
        when = f"{pace.rate:g} a second"
    elif pace.interval:
        when = f"{pace.interval * 1e3:g} ms apart"
    elif not with_concurrency:
        when = "each as soon as there is room"
    else:
        when = "all at once" if pace.concurrency is None else "one after another"
    if pace.concurrency is not None and with_concurrency:
        when += f", {pace.concurrency} in flight"
    how = "sampled" if sampling.do_sample else "greedy"
    return (
        f"{load.num_requests} requests {prompts}, {when}, {load.max_new_tokens} new tokens, {how}"
    )


def _facts(result: RunResult) -> list[str]:
    client = result.client
    about = " (estimated from pieces)" if client.estimated else ""
    cached = "" if client.cached_tokens is None else f" ({client.cached_tokens} cached)"
    who = "client" if result.engine is None else "process"
    facts = {
        "requests": f"{client.requests}: {client.completed} completed, {client.rejected} rejected, "
        f"{client.failed} failed; {client.short} ended early",
        "tokens": f"{client.prompt_tokens} prompt{cached}, "
        f"{client.completion_tokens} output in {client.pieces} pieces{about}",
        "time": f"{client.wall_s:.3f} s, submission {client.submit_wall_s:.3f} s",
        "throughput": f"{client.output_tok_s:.1f} output tok/s, {client.total_tok_s:.1f} tok/s, "
        f"{client.req_s:.2f} requests/s",
        f"{who} CPU": f"{result.cpu_share:.1%} of a core",
    }
    if client.first_error is not None:
        facts["first error"] = client.first_error
    return [f"{name:<22}{text}" for name, text in facts.items()]


def _spreads(title: str, spreads: dict[str, Spread | None]) -> list[str]:
    lines = [f"{title + ', ms':<22}" + "".join(f"{column:>10}" for column in _COLUMNS)]
    for name, spread in spreads.items():
        if spread is not None:
            values = (getattr(spread, column) for column in _COLUMNS)
            lines.append(f"{name:<22}" + "".join(f"{_short(value):>10}" for value in values))
    return lines


def _short(value: float) -> str:
    """Format with at least three significant digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _engine(engine: EngineSummary) -> list[str]:
    failed = f", {engine.failed_steps} failed" if engine.failed_steps else ""
    return [
        *_spreads(
            "engine side",
            {
                "tokenize": engine.tokenize_ms,
                "add_request": engine.add_request_ms,
                "queue wait": engine.queue_wait_ms,
                "prefill to first token": engine.prefill_ms,
            },
        ),
        f"{'steps':<22}{engine.steps}{failed}, {engine.preemptions} preemptions",
        f"{'output tokens a step':<22}{engine.tokens_per_step:.1f}",
    ]


_STEPS = {"decode": "of streams", "mixed": "of streams and prompts", "prefill": "of prompts"}


def _seconds(report: KindReport) -> float:
    """Of all its steps."""
    return report.num_steps * report.step_ms / 1e3


def _profile(report: KindReport, wall_s: float) -> list[str]:
    """``wall_s`` are the seconds of all runs."""
    what, share = _STEPS[report.kind], f"{_seconds(report) / wall_s:.1%} of the time"
    waiting = ", ".join(f"{ms:.3f}" for ms in report.waiting_ms)
    return [
        f"profile of {report.num_steps} steps {what}: {report.step_ms:.3f} ms each, {share}",
        f"{report.num_sequences:.1f} sequences, {report.num_tokens:.1f} tokens a step",
        f"profiling itself takes about {report.overhead_ms:.3f} ms a step",
        *([f"threads wait for one another for {waiting} ms a step"] if waiting else []),
        f"{'':<34}{'ms':>10}{'share':>8}{'calls':>8}{'waiting':>9}{'GB/s':>8}{'GFLOP/s':>9}",
        *(line for stage in report.stages for line in _stage(stage)),
    ]


def _stage(stage: StageTime) -> list[str]:
    lines = [f"{stage.name:<34}{stage.ms:10.3f}{stage.share:8.1%}"]
    for part in stage.parts:
        cells = (
            (f"{part.calls:.1f}" if part.calls else "", 8),
            ("" if part.waiting_ms is None else f"{part.waiting_ms:.3f}", 9),
            ("" if part.gb_s is None else f"{part.gb_s:.1f}", 8),
            ("" if part.gflop_s is None else f"{part.gflop_s:.0f}", 9),
        )
        row = "".join(f"{text:>{width}}" for text, width in cells)
        lines.append(f"  {part.name:<32}{part.ms:10.3f}{part.share:8.1%}{row}".rstrip())
    return lines
