"""The same loads over HTTP: what the front end costs is the difference to the engine alone."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.client import CompletionClient
from benchmarks.gpu.options import MAX_NUM_SEQS, Options
from benchmarks.load import run_scenario
from benchmarks.peers import BenchModel, Roseinfer
from benchmarks.running import Running
from benchmarks.scenarios import Scenario
from benchmarks.shapes import shape_of

NEEDS = ("litestar", "uvicorn", "httptools", "anyio")

START_TIMEOUT = 300.0


def missing() -> list[str]:
    """Packages that the server needs and that are not installed."""
    return [name for name in NEEDS if importlib.util.find_spec(name) is None]


@dataclass(frozen=True, kw_only=True)
class _Served(Roseinfer):
    """This repository's server on the device of the check."""

    options: Options

    def command(self, model: BenchModel, port: int) -> list[str]:
        """``serve`` with what the engines of the other parts have."""
        options = self.options
        serve = [sys.executable, "-m", "server", "serve", str(model.directory)]
        serve += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        serve += ["--device", options.device, "--dtype", options.dtype()]
        serve += ["--max-num-seqs", str(MAX_NUM_SEQS), "--max-queued-requests", str(MAX_NUM_SEQS)]
        return [*serve, "--kv-cache-memory", "128MiB"] if options.tiny else serve


class Server(Running):
    """A running server."""

    def measure(self, scenario: Scenario, *, seed: str) -> dict[str, Any]:
        """The figures of one run."""
        client = CompletionClient(
            f"http://127.0.0.1:{self._port}/v1",
            self.contender.model_name(self.model),
            extra=self.contender.extra,
        )
        return asyncio.run(run_scenario(client, scenario, seed=seed, limit=120.0))


@contextmanager
def served(options: Options, name: str) -> Iterator[Server]:
    """A server of this model, until the block is left."""
    directory = options.model(name)
    model = BenchModel(name=name, directory=directory, shape=shape_of(directory))
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(_Served(options=options), model, Path(folder) / "log") as server,
    ):
        server.wait_ready(START_TIMEOUT)
        yield server
