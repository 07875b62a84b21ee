"""A contender's process: started, waited for, put under load, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.client import CompletionClient
from benchmarks.load import run_scenario
from benchmarks.peers import BenchModel, Contender, clean_environment
from benchmarks.scenarios import scenarios

STOP_TIMEOUT = 15.0
"""Seconds that a server gets to end politely."""

POLL = 0.1

GRACE = 15.0
"""Seconds beyond a job's own limit after which the process that does it is given up."""


class DidNotStart(Exception):
    """A contender ended, or was not ready in time; the message holds the end of its log."""


class Running:
    """A process in a session of its own, with its log in a file; leaving the context ends it."""

    def __init__(self, contender: Contender, model: BenchModel, log: Path) -> None:
        self.contender = contender
        self.model = model
        self._log = log

    def __enter__(self) -> Self:
        self._port = _free_port()
        command = self.contender.command(self.model, self._port)
        with self._log.open("wb") as log:
            log.write((" ".join(command) + "\n").encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                env=clean_environment() | self.contender.environment(self.model),
                stdin=subprocess.PIPE,
                stdout=self._stdout(log),
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its session: what it may have left behind
        process.wait()

    @property
    def pid(self) -> int:
        """Of the process that was started; there may be others below it."""
        return self._process.pid

    def wait_ready(self, timeout: float) -> None:
        """Until it takes work. Raises DidNotStart."""
        end = time.monotonic() + timeout
        while not self._is_ready(end - time.monotonic()):
            if self._process.poll() is not None:
                raise DidNotStart(f"exited with {self._process.returncode}: {self._log_end()}")
            if time.monotonic() > end:
                raise DidNotStart(f"not ready after {timeout:.0f} s: {self._log_end()}")
            time.sleep(POLL)

    def warnings(self) -> list[str]:
        """What it has warned of so far, as far as its log calls it that."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return [line.partition(" WARNING ")[2] for line in lines if " WARNING " in line]

    def run(self, scenario: str, *, scale: float, seed: str, limit: float) -> dict[str, Any]:
        """The figures of one run."""
        client = CompletionClient(
            f"http://127.0.0.1:{self._port}/v1",
            self.contender.model_name(self.model),
            extra=self.contender.extra,
        )
        what = scenarios(self.model.shape.max_model_len, scale)[scenario]
        return asyncio.run(run_scenario(client, what, seed=seed, limit=limit))

    def _stdout(self, log: Any) -> Any:
        return log

    def _is_ready(self, timeout: float) -> bool:  # noqa: ARG002
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _log_end(self) -> str:
        _command, *lines = self._log.read_text("utf-8", "replace").splitlines()
        return " | ".join(lines[-3:])


class RunningInProcess(Running):
    """``benchmarks.in_process``, which is told what to run on its input."""

    def run(self, scenario: str, *, scale: float, seed: str, limit: float) -> dict[str, Any]:
        """The figures of one run. Raises DidNotStart if the process is gone."""
        job = {"scenario": scenario, "scale": scale, "seed": seed, "limit": limit}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        found = self._answer(limit + GRACE)
        if found is None:
            raise DidNotStart(f"no answer: {self._log_end()}")
        return found

    def _stdout(self, log: Any) -> Any:  # noqa: ARG002
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
    """The way to run this contender."""
    if getattr(contender, "is_in_process", False):
        return RunningInProcess(contender, model, log)
    return Running(contender, model, log)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
