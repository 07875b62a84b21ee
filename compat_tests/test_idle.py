"""An idle server costs nothing."""

import os
from pathlib import Path

import pytest

from compat_tests.support.api import Api
from compat_tests.support.waiting import eventually, pause

IDLE_SECONDS = 10.0


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rests(pid: int) -> bool:
    """Whether half a second costs nothing."""
    before = cpu_seconds(pid)
    pause(0.5)
    return cpu_seconds(pid) - before < 0.01


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_ten_seconds_of_idle_cost_under_a_tenth_of_cpu(api: Api) -> None:
    api.chat(max_tokens=4)
    with api.server.connect() as kept_alive:
        assert kept_alive.request("GET", "/health").json
        api.wait_idle()
        eventually(lambda: rests(api.server.pid))  # it may take memory for later requests first
        before = cpu_seconds(api.server.pid)
        pause(IDLE_SECONDS)
        assert cpu_seconds(api.server.pid) - before < 0.1
