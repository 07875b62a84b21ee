"""RayCluster: Ray and Serve in processes of their own on this machine, for tests and measurements.

Each line of JSON to ``benchmarks.ray_child`` is answered by one: ``{"do": "deploy", ...}`` by
``{"result": ...}`` or ``{"error": ...}``, each with ``seconds``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.process import clean_environment, free_port

ROOT = Path(__file__).resolve().parents[1]

EDGE = "server.ray.edge:middlewares"

REPLICA = "server.ray.replica:Replica"

STOP_TIMEOUT = 60.0


class ClusterError(Exception):
    """A command failed, or the cluster has ended."""


class RayCluster:
    """A context manager. Its commands may come from any thread; they run one after the other."""

    def __init__(self, *, num_cpus: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self._num_cpus = num_cpus
        self._environment = dict(environment or {})
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: it holds paths of sockets
        self.port = free_port()
        environment = clean_environment() | {
            "PYTHONPATH": str(ROOT),
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": EDGE,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            **self._environment,
        }
        self._log = (self.folder / "child.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.ray_child"),
                *(str(self.port), str(self._num_cpus), str(self.folder)),
            ],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deploy(
        self,
        args: Mapping[str, Any],
        *,
        name: str = "rose",
        prefix: str = "/",
        replica: str = REPLICA,
        options: Mapping[str, Any] | None = None,
    ) -> float:
        """Deploy the application of ``plan_of(args)``; the seconds until it runs.

        ``replica`` is the class of replicas, as ``module:Class``. ``options`` replace Serve's
        options in the plan. Raises ClusterError.
        """
        answer = self._ask(
            do="deploy",
            args=dict(args),
            name=name,
            prefix=prefix,
            replica=replica,
            options=dict(options or {}),
        )
        return float(answer["seconds"])

    def replicas(self, name: str = "rose") -> list[dict[str, Any]]:
        """``Replica.record_routing_stats`` of each live replica."""
        return list(self._ask(do="replicas", name=name)["result"])

    def status(self, name: str = "rose") -> dict[str, Any]:
        """``status`` and ``message`` of an application; ``replicas``: their number by state."""
        return dict(self._ask(do="status", name=name)["result"])

    def delete(self, name: str) -> None:
        self._ask(do="delete", name=name)

    def pids(self, title: str) -> list[int]:
        """Processes of this cluster whose command line contains ``title``."""
        found = _descendants(self._process.pid)
        return [pid for pid, command in found.items() if title in command]

    def close(self) -> None:
        """End the cluster and whatever is left of it."""
        process = self._process
        started = _descendants(process.pid)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """What the child wrote to standard error, and the last lines of Serve's logs."""
        parts = [(self.folder / "child.log").read_text("utf-8", "replace")]
        for file in sorted(self.folder.glob("session_latest/logs/serve/*.log")):
            lines = file.read_text("utf-8", "replace").splitlines()[-30:]
            parts += [f"== {file.name}", *lines]
        return "\n".join(parts)

    def _ask(self, **command: Any) -> dict[str, Any]:
        with self._turn:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClusterError(f"the cluster has ended: {self.log()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClusterError(answer["error"])
        return answer


def _descendants(pid: int) -> dict[int, str]:
    """The command line of each descendant of the process ``pid``, by its process id."""
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            child = int(folder.name)
            parents[child] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[child] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    found: dict[int, str] = {}
    generation = {pid}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        found |= {child: commands.get(child, "") for child in generation}
    return found
