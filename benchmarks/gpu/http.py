"""The loads of the other parts over HTTP; the difference is the cost of the front end."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import loads
from benchmarks.gpu.options import LARGE, MAX_NUM_SEQS, Options
from benchmarks.gpu.rows import Row, row_of
from benchmarks.peers import BenchModel, Roseinfer
from benchmarks.running import Running
from benchmarks.shapes import shape_of

NEEDS = ("litestar", "uvicorn", "httptools", "anyio")

START_TIMEOUT = 300.0
RUN_TIMEOUT = 120.0


def over_http(options: Options) -> Iterator[Row]:
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        yield {"name": "http", "skipped": f"not installed: {', '.join(missing)}"}
        return
    for name, scenarios in (
        ("gpt2", (loads.STAGGERED, loads.OFFLINE, loads.SINGLE)),
        (LARGE, loads.CONCURRENT),
    ):
        start = time.perf_counter()
        with _served(options, name) as server:
            yield {"name": f"{name} ready", "seconds": time.perf_counter() - start}
            warm_up = loads.fit(loads.WARM_UP, tiny=options.tiny)
            server.measure(warm_up, seed="warm-up", limit=RUN_TIMEOUT)
            for scenario in scenarios:
                load = loads.fit(scenario, tiny=options.tiny)
                found = server.measure(load, seed="http", limit=RUN_TIMEOUT)
                yield {"name": f"{name} {load.name}", **row_of(found)}


@dataclass(frozen=True, kw_only=True)
class _OnDevice(Roseinfer):
    """This repository's server on the device of the check."""

    options: Options

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``serve`` with the limits of the other parts' engines."""
        options = self.options
        serve = [sys.executable, "-m", "server", "serve", str(model.directory)]
        serve += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        serve += ["--device", options.device, "--dtype", options.dtype()]
        serve += ["--max-num-seqs", str(MAX_NUM_SEQS), "--max-queued-requests", str(MAX_NUM_SEQS)]
        return [*serve, "--kv-cache-memory", "128MiB"] if options.tiny else serve


@contextmanager
def _served(options: Options, name: str) -> Iterator[Running]:
    directory = options.model(name)
    model = BenchModel(name=name, directory=directory, shape=shape_of(directory))
    with (
        tempfile.TemporaryDirectory() as folder,
        Running(_OnDevice(options=options), model, Path(folder) / "log") as server,
    ):
        server.wait_ready(START_TIMEOUT)
        yield server
