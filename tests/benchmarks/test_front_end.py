"""``benchmarks.front_end``: what cannot be measured is said before a server is started."""

import argparse

import pytest

from benchmarks.front_end import cpu
from benchmarks.front_end.paced import MARGIN


def test_a_run_too_short_to_count_a_step_is_refused(monkeypatch):
    monkeypatch.setattr(cpu, "Child", lambda *_flags: pytest.fail("starts a server"))
    options = argparse.Namespace(tokens=2 * MARGIN, streams=4, step_ms=1.0)
    with pytest.raises(SystemExit, match="--tokens must be more than 40"):
        cpu.measure(options)
