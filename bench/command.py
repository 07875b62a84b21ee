"""``roseinfer bench``: runs, one after another, and what they found."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from tqdm import tqdm

from bench.client import CompletionClient, served_model
from bench.connection import ConnectionFailed
from bench.errors import BenchError
from bench.figures import summarize, summarize_engine
from bench.http_load import run_http
from bench.report import Report, RunResult, make_report, render, write_json
from bench.settings import BenchSettings, EngineTarget, Sampling, ServerTarget
from bench.timetable import Timetable
from bench.workload import Request, requests_of

if TYPE_CHECKING:
    from core.profile_report import KindReport


class Bench(Protocol):
    """Something that runs can be made with."""

    @property
    def target(self) -> str:
        """What is measured, in words."""

    def run(
        self, requests: Sequence[Request], timetable: Timetable, on_end: Callable[[], object]
    ) -> RunResult:
        """Make one run; ``on_end`` is called when a request has ended."""

    def warmed_up(self) -> None:
        """Hear that the runs from now on count."""

    @property
    def profile(self) -> Sequence[KindReport]:
        """Where the time of the steps went in the runs that count, if it is known."""


def run(settings: BenchSettings) -> int:
    """Do it all; returns the exit code: 1 if a request failed, 2 if it could not begin."""
    target = settings.target
    try:
        if isinstance(target, EngineTarget) and target.random_model is not None:
            target = _with_random_model(target, target.random_model)
            settings = msgspec.structs.replace(settings, target=target)
            if target.make_only:
                print(target.model.model)
                return 0
        with _opened(settings) as bench:
            report = measure(bench, settings)
        if settings.json is not None:
            write_json(report, settings.json)
    except BenchError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    print(render(report))
    return 1 if any(run.client.failed or not run.client.completed for run in report.runs) else 0


def measure(bench: Bench, settings: BenchSettings) -> Report:
    """Warm up, run, and sum up."""
    runs = []
    names = [f"warm-up {i + 1}" for i in range(settings.warmup_runs)]
    names += [f"run {i + 1}" for i in range(settings.repeat_runs)]
    for index, name in enumerate(names):
        requests = requests_of(settings.workload, name)
        timetable = Timetable(settings.pace, len(requests), f"{settings.workload.seed}/{name}")
        if index == settings.warmup_runs:
            bench.warmed_up()
        with _bar(name, len(requests)) as bar:
            result = bench.run(requests, timetable, bar.update)
        if index >= settings.warmup_runs:
            runs.append(result)
    return make_report(bench.target, settings, runs, bench.profile)


def _bar(name: str, total: int) -> Any:
    """A progress bar, on a terminal only, drawn seldom: the core thread may be who draws it."""
    return tqdm(total=total, desc=name, unit="request", leave=False, disable=None, mininterval=0.5)


@contextmanager
def _opened(settings: BenchSettings) -> Iterator[Bench]:
    target = settings.target
    if isinstance(target, ServerTarget):
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            yield _ServerBench(runner, target, settings)
        return
    print("roseinfer: loading the model ...", file=sys.stderr)
    bench = _EngineBench(target, settings)
    try:
        yield bench
    finally:
        bench.close()


class _ServerBench:
    """Runs against a server."""

    def __init__(
        self, runner: asyncio.Runner, target: ServerTarget, settings: BenchSettings
    ) -> None:
        self._runner = runner
        self._concurrency = settings.pace.concurrency
        self.profile: Sequence[KindReport] = ()
        try:
            model = target.model or runner.run(
                served_model(target.base_url, api_key=target.api_key)
            )
            self._client = CompletionClient(
                target.base_url,
                model,
                api_key=target.api_key,
                chat=settings.chat,
                extra=sampling_fields(settings.sampling),
                timeout=target.timeout,
            )
        except (ValueError, ConnectionFailed) as error:
            raise BenchError(str(error)) from error
        self.target = f"{model} at {target.base_url}" + (", chat" if settings.chat else "")

    def warmed_up(self) -> None:
        """Nothing changes."""

    def run(
        self, requests: Sequence[Request], timetable: Timetable, on_end: Callable[[], object]
    ) -> RunResult:
        """Make one run."""
        with _CpuShare() as cpu:
            records = self._runner.run(
                run_http(
                    self._client, requests, timetable, concurrency=self._concurrency, on_end=on_end
                )
            )
        return RunResult(client=summarize(records), cpu_share=cpu.share)


class _EngineBench:
    """Runs with an engine in this process."""

    def __init__(self, target: EngineTarget, settings: BenchSettings) -> None:
        from bench.in_process import EngineBench  # noqa: PLC0415 - imports torch

        self._bench = EngineBench(target)
        self._settings = settings
        info = self._bench.info
        name = target.random_model or target.model.model or "the built-in model"
        kind = ", random weights" if target.random_model else ""
        self.target = f"{name}{kind}, in process: {info.dtype} on {info.device}"

    @property
    def profile(self) -> Sequence[KindReport]:
        """Where the time of the steps went."""
        return self._bench.profile

    def warmed_up(self) -> None:
        """Measure steps from here on."""
        self._bench.clear_profile()

    def close(self) -> None:
        """Stop the engine."""
        self._bench.close()

    def run(
        self, requests: Sequence[Request], timetable: Timetable, on_end: Callable[[], object]
    ) -> RunResult:
        """Make one run."""
        before = self._bench.stats
        with _CpuShare() as cpu:
            records = self._bench.run(
                requests,
                timetable,
                self._settings.sampling,
                chat=self._settings.chat,
                concurrency=self._settings.pace.concurrency,
                on_end=on_end,
            )
        return RunResult(
            client=summarize(records),
            engine=summarize_engine(records, before, self._bench.stats),
            cpu_share=cpu.share,
        )


class _CpuShare:
    """How much of a core this process used in a block."""

    share = 0.0

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.share = (time.process_time() - self._cpu) / (time.perf_counter() - self._wall)


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """What the flags say, in the words of a request's body."""
    fields: dict[str, Any] = {}
    if not sampling.do_sample:
        fields["temperature"] = 0
    for name in ("temperature", "top_k", "top_p", "stream_interval"):
        value = getattr(sampling, name)
        if value is not None:
            fields[name] = value
    if sampling.ignore_eos:
        fields["ignore_eos"] = True
    return fields


def _with_random_model(target: EngineTarget, name: str) -> EngineTarget:
    from bench.random_model import cached_random_model  # noqa: PLC0415 - for few

    try:
        directory = cached_random_model(
            name, on_make=lambda path: print(f"roseinfer: making {path} ...", file=sys.stderr)
        )
    except OSError as error:
        raise BenchError(f"the random model cannot be made: {error}") from error
    model = msgspec.structs.replace(target.model, model=str(directory))
    return msgspec.structs.replace(target, model=model)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where there is one: it takes less of the machine that the server may share."""
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    return uvloop.new_event_loop
