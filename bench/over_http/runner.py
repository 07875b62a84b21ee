"""ServerRunner: runs against a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.errors import BenchError
from bench.figures import curves_of, summarize
from bench.over_http.client import CompletionClient, served_model
from bench.over_http.connection import ConnectionFailed
from bench.over_http.load import run_http
from bench.report import RunResult
from bench.runner import CpuShare
from bench.settings import BenchSettings, Sampling, ServerTarget
from bench.timetable import Timetable
from bench.workload import Request


class ServerRunner:
    """See Runner."""

    profile = ()

    def __init__(self, loop: asyncio.Runner, target: ServerTarget, settings: BenchSettings) -> None:
        """Raises BenchError if the URL is wrong or the server does not name its model."""
        self._loop = loop
        try:
            model = target.model or loop.run(served_model(target.base_url, api_key=target.api_key))
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

    def clear_profile(self) -> None:
        pass

    def run(
        self,
        requests: Sequence[Request],
        timetable: Timetable,
        on_end: Callable[[], object],
        concurrency: int | None,
    ) -> RunResult:
        with CpuShare() as cpu:
            records = self._loop.run(
                run_http(self._client, requests, timetable, concurrency=concurrency, on_end=on_end)
            )
        return RunResult(client=summarize(records), cpu_share=cpu.share, curves=curves_of(records))


@contextmanager
def server_runner(target: ServerTarget, settings: BenchSettings) -> Iterator[ServerRunner]:
    """A runner and its event loop. Raises BenchError."""
    with asyncio.Runner(loop_factory=_loop_factory()) as loop:
        yield ServerRunner(loop, target, settings)


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """Return the fields of a request's body that the flags stand for."""
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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's if it is installed: it leaves more of the machine to a local server."""
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    return uvloop.new_event_loop
