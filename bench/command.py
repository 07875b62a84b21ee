"""``roseinfer bench``: warm-up runs, the runs that count, and their report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from tqdm import tqdm

from bench.errors import BenchError
from bench.report import Report, make_report, render, write_json
from bench.runner import Runner
from bench.settings import BenchSettings, EngineTarget, ServerTarget
from bench.timetable import Timetable
from bench.workload import requests_of


def run(settings: BenchSettings) -> int:
    """Measure and print; return the exit code: 1 if a request failed, 2 on a BenchError."""
    target = settings.target
    try:
        if isinstance(target, EngineTarget) and target.random_model is not None:
            target = _with_random_model(target, target.random_model)
            settings = msgspec.structs.replace(settings, target=target)
            if target.make_only:
                print(target.model.model)
                return 0
        with _opened(settings) as runner:
            report = measure(runner, settings)
        if settings.json is not None:
            write_json(report, settings.json)
    except BenchError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    print(render(report))
    return 1 if any(run.client.failed or not run.client.completed for run in report.runs) else 0


def measure(runner: Runner, settings: BenchSettings) -> Report:
    """Make all runs and report those that count."""
    results = []
    names = [f"warm-up {i + 1}" for i in range(settings.warmup_runs)]
    names += [f"run {i + 1}" for i in range(settings.repeat_runs)]
    for index, name in enumerate(names):
        requests = requests_of(settings.workload, name)
        timetable = Timetable(settings.pace, len(requests), f"{settings.workload.seed}/{name}")
        if index == settings.warmup_runs:
            runner.clear_profile()
        with _bar(name, len(requests)) as bar:
            result = runner.run(requests, timetable, bar.update)
        if index >= settings.warmup_runs:
            results.append(result)
    return make_report(runner.target, settings, results, runner.profile)


def _bar(name: str, total: int) -> Any:
    """A progress bar, on a terminal only. It is drawn seldom: the core thread may draw it."""
    return tqdm(total=total, desc=name, unit="request", leave=False, disable=None, mininterval=0.5)


@contextmanager
def _opened(settings: BenchSettings) -> Iterator[Runner]:
    target = settings.target
    if isinstance(target, ServerTarget):
        from bench.over_http.runner import server_runner  # noqa: PLC0415 - only one of the two

        with server_runner(target, settings) as runner:
            yield runner
        return
    from bench.in_process.runner import engine_runner  # noqa: PLC0415 - imports torch

    print("roseinfer: loading the model ...", file=sys.stderr)
    with engine_runner(target, settings) as runner:
        yield runner


def _with_random_model(target: EngineTarget, name: str) -> EngineTarget:
    from bench.random_model import cached_random_model  # noqa: PLC0415 - imports torch

    try:
        directory = cached_random_model(
            name, on_make=lambda path: print(f"roseinfer: making {path} ...", file=sys.stderr)
        )
    except OSError as error:
        raise BenchError(f"cannot make the random model: {error}") from error
    model = msgspec.structs.replace(target.model, model=str(directory))
    return msgspec.structs.replace(target, model=model)
