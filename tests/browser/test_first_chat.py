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

from benchmarks.host import machine_seconds, tree
from compat_tests.support.process import START_TIMEOUT, loopback_only
from tests.browser.conftest import TIMEOUT_MS, answered
from tests.docs.markdown import ROOT, page
from tests.support.clones import clone

pytestmark = pytest.mark.browser

MINUTE = 60.0
"""Seconds from the start of the server process to the end of the first answer. On a machine with
other work its CPU time counts, with that of its compilers."""

QUIET = 0.15
"""Cores that others may use on a quiet machine."""


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


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants, with those that have ended."""
    ticks = 0
    for child in tree(pid):
        with contextlib.suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def age(pid: int) -> float:
    """Seconds since a process was started."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def test_one_command_and_a_minute(checkout, browser, tmp_path, capsys):
    """With an empty home, so the kernels are compiled too."""
    (block, *_) = page(ROOT / "README.md").blocks
    assert block.commands == ["make serve"]
    begin, busy, ours = time.monotonic(), machine_seconds()[0], cpu_seconds(os.getpid())
    command = [*block.commands[0].split(), "ARGS=--port 0"]
    with served(command, checkout, tmp_path / "home") as (url, start, process):
        tab = browser.new_page()
        tab.set_default_timeout(TIMEOUT_MS)
        tab.goto(url)
        tab.wait_for_selector(".dot.ok")
        loaded = time.monotonic()
        server, *_ = tree(process)[1:]
        answer = answered(tab, "Hello! Who are you?")
        end, wall = time.monotonic(), age(server)
        assert answer.locator(".markdown").inner_text().strip()
        tab.close()
        cpu = cpu_seconds(server)
        others = machine_seconds()[0] - busy - (cpu_seconds(os.getpid()) - ours)
    is_quiet = others < QUIET * (end - begin)
    with capsys.disabled():
        sys.stdout.write(
            f"\nfrom the command to the answer: {end - begin:.1f} s, {wall:.1f} s of them after "
            f"installing: {wall - (end - start):.1f} s until it listened, {loaded - start:.1f} s "
            f"until it was ready (kernels are compiled), {end - loaded:.1f} s for the answer; "
            f"{cpu:.1f} s of CPU time; others used {others:.1f} s, so "
            f"{'wall' if is_quiet else 'CPU'} time counts\n"
        )
    assert (wall if is_quiet else min(wall, cpu)) < MINUTE
