from __future__ import annotations

import os
import subprocess
import sys

import pytest

from core.system.machine import num_cores
from tests.support.source_tree import ROOT

SHOW = "import os; from server.cli.program import set_up; set_up('info'); print(os.environ[{!r}])"


@pytest.mark.parametrize(("given", "threads"), [({}, num_cores()), ({"OMP_NUM_THREADS": "37"}, 37)])
def test_threads_are_the_cores_unless_the_environment_says_otherwise(given, threads):
    environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(  # noqa: S603 - this repository's own code
        [sys.executable, "-c", SHOW.format("OMP_NUM_THREADS")],
        env={**environ, **given},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == threads


INTERRUPT = """
import signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
import server.cli.main
"""


@pytest.mark.parametrize(
    "module", ["server.cli.quantize", "msgspec", "server.settings.flags", "server.cli.program"]
)
def test_an_interrupt_during_imports_prints_nothing(module):
    done = subprocess.run(  # noqa: S603 - this repository's own code
        [sys.executable, "-c", INTERRUPT.format(module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
