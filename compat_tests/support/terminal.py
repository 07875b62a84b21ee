"""The program on a terminal of its own."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import Self

from compat_tests.support.process import QUIET, ROOT

COLUMNS, LINES = 100, 40

_SIZE = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
"""Programs believe these variables more than the terminal."""

_OWN = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""Makes the terminal the process's own, so that Ctrl-C becomes a signal."""

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """``python -m server ARGUMENTS`` with a keyboard and a screen. A context manager."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ROSEINFER_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN, "-m", "server", *arguments],
            cwd=ROOT,
            env=clean | QUIET | _SIZE | {"TERM": "xterm"} | (env or {}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._raw = b""
        self._seen = 0

    @property
    def shown(self) -> str:
        """Everything so far, without colours and cursor movements."""
        return _ESCAPES.sub("", self._raw.decode(errors="replace")).replace("\r", "")

    @property
    def lines(self) -> list[str]:
        """The lines that stay: a line that is erased and written again counts once."""
        text = self._raw.decode(errors="replace").replace("\r\n", "\n")
        return _ESCAPES.sub("", re.sub(r"[^\n]*\x1b\[2K", "", text)).split("\n")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, timeout: float = 60.0) -> str:
        """Return what appears from the last find on, up to and including ``text``."""
        end = time.monotonic() + timeout
        while (place := self.shown.find(text, self._seen)) < 0:
            assert self._read(end - time.monotonic()), f"no {text!r} in:\n{self.shown}"
        start, self._seen = self._seen, place + len(text)
        return self.shown[start : self._seen]

    def wait_exit(self, timeout: float = 30.0) -> int:
        """Return the exit code."""
        end = time.monotonic() + timeout
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def _read(self, timeout: float) -> bool:
        """Read what comes within the time; False at the end or without anything."""
        if timeout <= 0 or not select.select([self._master], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self._raw += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
