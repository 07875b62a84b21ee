"""measure: all runs of one level of load."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from bench.report import Report, make_report
from bench.runner import Runner
from bench.settings import BenchSettings
from bench.timetable import Timetable
from bench.workload import requests_of


def measure(runner: Runner, settings: BenchSettings) -> Report:
    """Make all runs and report those that count."""
    results = []
    level = f" of {settings.pace.concurrency} in flight" if settings.sweep else ""
    names = [f"warm-up {i + 1}{level}" for i in range(settings.warmup_runs)]
    names += [f"run {i + 1}{level}" for i in range(settings.repeat_runs)]
    for index, name in enumerate(names):
        requests = requests_of(settings.workload, name)
        timetable = Timetable(settings.pace, len(requests), f"{settings.workload.seed}/{name}")
        if index == settings.warmup_runs:
            runner.clear_profile()
        with _bar(name, len(requests)) as bar:
            result = runner.run(requests, timetable, bar.update, settings.pace.concurrency)
        if index >= settings.warmup_runs:
            results.append(result)
    return make_report(runner.target, settings, results, runner.profile)


def _bar(name: str, total: int) -> Any:
    """A progress bar, on a terminal only. It is drawn seldom: the core thread may draw it."""
    return tqdm(total=total, desc=name, unit="request", leave=False, disable=None, mininterval=0.5)
