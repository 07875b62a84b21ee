"""A server process on a free loopback port: started, polled until it is ready, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self

STOP_TIMEOUT = 15.0
"""Seconds between SIGTERM and SIGKILL."""

POLL_INTERVAL = 0.1

DROPPED = ("ROSEINFER_", "OMP_", "GOMP_", "KMP_", "MKL_")
"""Variables with these prefixes are not passed on: they would speed up or slow down one server."""


class DidNotStart(Exception):
    """A process exited or was not ready in time. The message contains the end of its log."""


class ServerProcess:
    """A process in its own session with its log in a file; leaving the context stops it."""

    READY_PATH: ClassVar[str] = "/health"

    def __init__(
        self,
        command: Callable[[int], list[str]],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``command`` gets the port and returns the command line."""
        self._command = command
        self._log = log
        self._environment = clean_environment() | dict(environment or {})

    def __enter__(self) -> Self:
        self._port = free_port()
        command = self._command(self._port)
        with self._log.open("wb") as log:
            log.write((" ".join(command) + "\n").encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                env=self._environment,
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
            os.killpg(process.pid, signal.SIGKILL)  # children that outlived it
        process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://127.0.0.1:{self._port}"

    def wait_ready(self, timeout: float) -> None:
        """Wait until GET READY_PATH answers 200. Raises DidNotStart after ``timeout`` s."""
        end = time.monotonic() + timeout
        while not self._is_ready(end - time.monotonic()):
            if self._process.poll() is not None:
                raise DidNotStart(f"exited with {self._process.returncode}: {self._log_end()}")
            if time.monotonic() > end:
                raise DidNotStart(f"not ready after {timeout:.0f} s: {self._log_end()}")
            time.sleep(POLL_INTERVAL)

    def warnings(self) -> list[str]:
        """The text of the log lines with the level WARNING."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return [line.partition(" WARNING ")[2] for line in lines if " WARNING " in line]

    def _stdout(self, log: IO[bytes]) -> IO[bytes] | int:
        """Where standard output goes."""
        return log

    def _is_ready(self, timeout: float) -> bool:  # noqa: ARG002 - for processes without a port
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", self.READY_PATH)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _log_end(self) -> str:
        _command, *lines = self._log.read_text("utf-8", "replace").splitlines()
        return " | ".join(lines[-3:])


def clean_environment() -> dict[str, str]:
    """The environment of every server: that of this process without DROPPED."""
    return {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}


def free_port() -> int:
    """A port of loopback on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
