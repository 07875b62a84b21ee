"""A test run that gets SIGTERM, as from ``timeout``, ends the processes that its tests started."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from compat_tests.support.process import ROOT

pytestmark = pytest.mark.slow

SERVER = "import signal, sys; print('started', file=sys.stderr, flush=True); signal.pause()"
TEST = f"""
from tests.deploy.serving import check_serves

def test_it(tmp_path):
    check_serves([{sys.executable!r}, "-c", {SERVER!r}], tmp_path)
"""


@pytest.mark.parametrize("folder", ["tests", "compat_tests"])
def test_no_process_is_left(tmp_path, folder):
    (tmp_path / "test_it.py").write_text(TEST)
    plugin = ("-p", f"{folder}.conftest", "-p", "no:cacheprovider")
    options = ("-c", ROOT / "pyproject.toml", "-n0", "-s", *plugin)
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "pytest", *options, tmp_path / "test_it.py"],
        cwd=ROOT,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            assert run.stderr is not None
            assert run.stderr.readline() == "started\n"
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=60)  # until both have closed the pipe
            assert run.returncode == pytest.ExitCode.INTERRUPTED
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
