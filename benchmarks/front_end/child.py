"""The measured process: this program with another command, which communicates in lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Child:
    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.front_end", *argv],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self, pattern: str) -> str:
        """Wait for a line that matches; returns the first group."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                return found[1]
        raise SystemExit(f"the child exited with {self._process.wait()}")

    def read_url(self) -> str:
        """Wait until the server is ready; returns its URL."""
        url = self.read(r"^Listening on (\S+),")
        self.read(r"^(Serving)")
        return url

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
