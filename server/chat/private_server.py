"""PrivateServer: a server of one model, for one user, that ends with its chat."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from server.chat.errors import StartError
from server.chat.flags import PASSED_ON
from server.flags import ENV_PREFIX

STOP_TIMEOUT = 10.0
"""Seconds in which the server may end by itself."""


class PrivateServer:
    """``roseinfer serve`` on a Unix socket in a folder that only this user can enter.

    It has a session of its own, so that Ctrl-C in the terminal reaches the chat alone, and it ends
    with this process, whichever way that ends. Its progress bar goes to stderr.
    """

    def __init__(self, model: str | None, flags: tuple[str, ...]) -> None:
        self._folder = tempfile.mkdtemp(prefix="roseinfer-chat-")
        self.path = str(Path(self._folder) / "socket")
        arguments = [] if model is None else [model]
        arguments += ["--uds", self.path, "--log-level", "warning", *flags]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in PASSED_ON or not name.startswith(ENV_PREFIX)
        }
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "server.with_parent", str(os.getpid()), *arguments],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        """Wait until it serves. Raises StartError if it ends instead; it has said why."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("Serving "):
                return
        code = self._process.wait()
        raise StartError(f"the private server ended with code {code}", code=code if code > 0 else 1)

    def close(self) -> None:
        """End it. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
