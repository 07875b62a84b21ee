"""A server in a process of its own."""

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.http import Connection, ConnectionEnded, Reply
from compat_tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]

START_TIMEOUT = 120.0
"""Seconds until the model is loaded; generous, because the machine may be busy."""

QUIET = {"PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "passive"}
"""Threads of torch that spin while they wait make a busy machine ten times slower."""

live: list["ServerProcess"] = []
"""Every server that runs now, for the report of a failing test."""


def add_stderr(report: pytest.TestReport) -> None:
    """Show what the running servers wrote when a test fails, but for their access logs."""
    if report.failed:
        for server in live:
            lines = [line for line in server.stderr.splitlines() if "roseinfer.access" not in line]
            report.sections.append((f"stderr of server {server.pid}", "\n".join(lines[-40:])))


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """No server that is started meanwhile asks a proxy or a hub."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


class ServerProcess:
    """``python -m server serve`` on a free loopback port; its stderr goes to a file.

    ``command`` replaces ``-m server serve``. Flags are given as on the command line. ``tls``
    checks the certificate of a server with one; ``--uds`` among the flags is followed.
    """

    def __init__(
        self,
        *flags: str,
        command: tuple[str, ...] = ("-m", "server", "serve"),
        env: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._uds = flags[flags.index("--uds") + 1] if "--uds" in flags else ""
        self._stderr = tempfile.NamedTemporaryFile(prefix="roseinfer-stderr-")  # noqa: SIM115
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ROSEINFER_")}
        self.process = subprocess.Popen(
            [sys.executable, *command, "--host", "127.0.0.1", "--port", "0", *flags],
            cwd=ROOT,
            env=clean | QUIET | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._output: list[str] = []
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        self.host = "127.0.0.1"
        self.port = 0
        self._model: dict[str, Any] | None = None
        self._key: str | None = None
        if "--api-key" in flags:
            self._key = f"Bearer {flags[flags.index('--api-key') + 1]}"
        live.append(self)

    def wait_listening(self, timeout: float = START_TIMEOUT) -> "ServerProcess":
        """Until it has printed its URL, which it does once the socket is open."""

        def found() -> int:
            match = re.search(r"Listening on \w+:.*?(\d*),", self.stdout)
            if match:
                return int(match[1] or 80)
            assert self.process.poll() is None, (
                f"exited with {self.process.returncode}\n{self.stdout}\n{self.stderr}"
            )
            return 0

        self.port = eventually(found, timeout=timeout, what="a printed URL")
        return self

    def wait_ready(self, timeout: float = START_TIMEOUT) -> "ServerProcess":
        """Until GET /health answers 200."""
        self.wait_listening(timeout)

        def ready() -> bool:
            assert self.process.poll() is None, (
                f"exited with {self.process.returncode}\n{self.stderr}"
            )
            with contextlib.suppress(OSError):  # it may exit at any moment
                return self.health()[0] == 200
            return False

        eventually(ready, timeout=timeout, interval=0.02, what="readiness")
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        """The processes that serve."""
        return [self.pid]

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.host}:{self.port}"

    @property
    def stdout(self) -> str:
        return "".join(self._output)

    @property
    def stderr(self) -> str:
        return Path(self._stderr.name).read_text(errors="replace")

    @property
    def model(self) -> str:
        """The served model's id."""
        return str(self.model_card["id"])

    @property
    def max_model_len(self) -> int:
        return int(self.model_card["max_model_len"])

    @property
    def model_card(self) -> dict[str, Any]:
        if self._model is None:
            with self.connect() as connection:
                self._model = connection.request(
                    "GET", "/v1/models", headers={"authorization": self._key}
                ).json["data"][0]
        return self._model

    def connect(
        self, *, timeout: float = 60.0, receive_buffer: int | None = None, source: str = ""
    ) -> Connection:
        """Open a raw connection; the caller closes it. ``source`` is the address it comes from."""
        return Connection(
            self.host,
            self.port,
            timeout=timeout,
            receive_buffer=receive_buffer,
            source=source,
            tls=self._tls,
            uds=self._uds,
        )

    def get(self, path: str, headers: dict[str, str | None] | None = None) -> Reply:
        """One GET on a connection of its own, body included."""
        with self.connect() as connection:
            reply = connection.request("GET", path, headers=headers)
            assert reply.body is not None
            return reply

    def health(self) -> tuple[int, str]:
        """The status code and the status word."""
        reply = self.get("/health")
        return reply.status, reply.json["status"]

    def stats(self) -> dict[str, Any]:
        return self.get("/stats", {"authorization": self._key}).json

    def is_listening(self) -> bool:
        """Whether new connections get an answer."""
        try:
            self.get("/health")
        except (OSError, ConnectionEnded):
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_exit(self, timeout: float) -> int:
        """The exit code; fails, with stderr, if there is none in time."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still alive after {timeout} s\n{self.stderr}") from None

    def stop(self) -> int:
        """End it the polite way, then the hard way. Returns the exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.close()
        return self.process.returncode

    def close(self) -> None:
        """Kill what may be left and let go of the files. Harmless when repeated."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self in live:
            live.remove(self)
            self.final_stderr = self.stderr
            self._stderr.close()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line.decode(errors="replace"))
