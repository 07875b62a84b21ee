"""``roseinfer bench``: warm-up runs, the runs that count, and their report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bench.errors import BenchError
from bench.files import check_files, write_files
from bench.measure import measure
from bench.report import render, render_sweep
from bench.runner import Runner
from bench.settings import BenchSettings, EngineTarget, ServerTarget
from server.process import heap


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
        check_files(settings)
        with _opened(settings) as runner:
            reports = [measure(runner, level) for level in _levels(settings)]
        write_files(settings, reports)
    except BenchError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    print(render_sweep(reports) if settings.sweep else render(reports[0]))
    runs = [run.client for report in reports for run in report.runs]
    return 1 if any(run.failed or not run.completed for run in runs) else 0


def _levels(settings: BenchSettings) -> list[BenchSettings]:
    """The settings of each level of concurrency; one of them without a sweep."""
    replace = msgspec.structs.replace
    return [
        replace(settings, pace=replace(settings.pace, concurrency=level))
        for level in settings.sweep
    ] or [settings]


@contextmanager
def _opened(settings: BenchSettings) -> Iterator[Runner]:
    target = settings.target
    heap.collect_rarely()  # until the runner is there, as in a server
    if isinstance(target, ServerTarget):
        from bench.over_http.runner import server_runner  # noqa: PLC0415 - only one of the two

        with server_runner(target, settings) as runner:
            heap.freeze()
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
