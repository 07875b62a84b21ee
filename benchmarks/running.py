"""A contender's process under the scenarios' loads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from bench.over_http.client import CompletionClient
from benchmarks.jobs import PAUSE
from benchmarks.load import run_scenario
from benchmarks.peers import BenchModel, Contender
from benchmarks.process import DidNotStart, ServerProcess
from benchmarks.scenarios import Scenario, scenarios

GRACE = 15.0
"""Seconds beyond a job's own time limit after which its process counts as dead."""


def nothing() -> None:
    """Do nothing between two requests."""


class Running(ServerProcess):
    """A contender's server. It has no request in a ``pause``, between two of one stream."""

    def __init__(self, contender: Contender, model: BenchModel, log: Path) -> None:
        super().__init__(
            lambda port: contender.command(model, port), log, contender.environment(model)
        )
        self.contender = contender
        self.model = model

    def run(
        self,
        scenario: str,
        *,
        scale: float,
        seed: str,
        limit: float,
        pause: Callable[[], None] = nothing,
    ) -> dict[str, Any]:
        """Run a scenario; returns its figures."""
        found = scenarios(self.model.shape.max_model_len, scale)[scenario]
        return self.measure(found, seed=seed, limit=limit, pause=pause)

    def measure(
        self,
        scenario: Scenario,
        *,
        seed: str,
        limit: float,
        pause: Callable[[], None] = nothing,
    ) -> dict[str, Any]:
        client = CompletionClient(
            f"{self.url}/v1",
            self.contender.model_name(self.model),
            extra={**scenario.sampling, **self.contender.extra},
        )

        async def blocked() -> None:
            pause()

        return asyncio.run(run_scenario(client, scenario, seed=seed, limit=limit, pause=blocked))


class RunningInProcess(Running):
    """A process without a server: it reads jobs from stdin and answers on stdout.

    See ``benchmarks.jobs``.
    """

    def run(
        self,
        scenario: str,
        *,
        scale: float,
        seed: str,
        limit: float,
        pause: Callable[[], None] = nothing,
    ) -> dict[str, Any]:
        """Run a scenario; returns its figures. Raises DidNotStart if the process is dead."""
        self._tell({"scenario": scenario, "scale": scale, "seed": seed, "limit": limit})
        while (found := self._answer(limit + GRACE)) == PAUSE:
            pause()
            self._tell({})
        if found is None:
            raise DidNotStart(f"no answer: {self._log_end()}")
        return found

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()

    def _stdout(self, log: IO[bytes]) -> int:  # noqa: ARG002
        return subprocess.PIPE

    def _is_ready(self, timeout: float) -> bool:
        return self._answer(timeout) is not None

    def _answer(self, timeout: float) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, timeout)):
                return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def running(contender: Contender, model: BenchModel, log: Path) -> Running:
    """The process of this contender, not started yet."""
    if getattr(contender, "is_in_process", False):
        return RunningInProcess(contender, model, log)
    return Running(contender, model, log)
