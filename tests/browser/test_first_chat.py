"""From a fresh clone to a chat in the browser: one command, a minute at most after install."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.support.process import START_TIMEOUT, loopback_only
from tests.browser.conftest import TIMEOUT_MS, answered
from tests.docs.markdown import ROOT, page
from tests.support.clones import clone

pytestmark = pytest.mark.browser

MINUTE = 60.0
"""Seconds from the first line of the server to the end of the first answer. On a machine with
other work the CPU time of the server counts, with that of its compilers, if it is less."""


@pytest.fixture
def checkout(tmp_path) -> Path:
    return clone(tmp_path / "roseinfer")


@contextlib.contextmanager
def served(command: list[str], folder: Path, home: Path) -> Iterator[tuple[str, float, int]]:
    """Run the command until it says where it listens.

    Gives the URL, when it said so, and the process of the command.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROSEINFER_", "PYTHON"))}
    home.mkdir()
    with loopback_only(), contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command,
                cwd=folder,
                env=clean | {"HOME": str(home), "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # as a terminal does: Ctrl-C reaches make and the server
            )
        )
        timer = threading.Timer(2 * START_TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        stack.callback(timer.cancel)
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if found := re.match(r"Listening on (\S+),", line):
                try:
                    yield found[1], time.monotonic(), process.pid
                finally:
                    os.killpg(process.pid, signal.SIGINT)
                    process.wait(30)
                return
        raise AssertionError(f"it has ended: {printed}")


def cpu_seconds_of_children(pid: int) -> float:
    """CPU time of the live children of a process, and of theirs that have ended."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    ticks = 0
    for child in children:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def test_one_command_and_a_minute(checkout, browser, tmp_path, capsys):
    """With an empty home, so the kernels are compiled too."""
    (block, *_) = page(ROOT / "README.md").blocks
    assert block.commands == ["make serve"]
    begin = time.monotonic()
    command = [*block.commands[0].split(), "ARGS=--port 0"]
    with served(command, checkout, tmp_path / "home") as (url, start, process):
        tab = browser.new_page()
        tab.set_default_timeout(4 * TIMEOUT_MS)
        tab.goto(url)
        tab.wait_for_selector(".dot.ok")
        loaded = time.monotonic()
        answer = answered(tab, "Hello! Who are you?")
        end = time.monotonic()
        assert answer.locator(".markdown").inner_text().strip()
        tab.close()
        cpu = cpu_seconds_of_children(process)
    with capsys.disabled():
        sys.stdout.write(
            f"\nfrom the command to the answer: {end - begin:.1f} s; of these "
            f"{start - begin:.1f} s until it listened (make installs roseinfer), "
            f"{loaded - start:.1f} s until it was ready (kernels are compiled), "
            f"{end - loaded:.1f} s for the answer; {cpu:.1f} s of CPU time after installing\n"
        )
    assert min(end - start, cpu) < MINUTE
