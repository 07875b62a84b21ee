"""Ray's own command runs the file of the documentation."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from benchmarks.process import clean_environment, free_port
from benchmarks.ray_cluster import EDGE
from compat_tests.support.http import Connection
from compat_tests.support.waiting import eventually
from tests.docs.markdown import ROOT, page
from tests.ray.fleet import CHAT, PATIENCE, chat

pytestmark = pytest.mark.ray

SMALL = {"num_cpus": 0.2, "num_gpus": 0, "kv_cache_memory": "64MB", "log_level": "warning"}


def applications(port: int) -> dict:
    """The documentation's file, with the built-in model, this port, and little of everything."""
    blocks = page(ROOT / "docs" / "several-machines.md").blocks
    [text] = [block.text for block in blocks if block.language == "yaml"]
    found: dict = yaml.safe_load(text)
    found["http_options"] = {"host": "127.0.0.1", "port": port}
    for application in found["applications"]:
        del application["args"]["model"]
        application["args"] |= SMALL
        application["args"].pop("replicas", None)
    return found


@pytest.fixture
def command(tmp_path):
    """`serve run FILE`, in a Ray of its own. Gives its port."""
    if find_spec("ray") is None:
        pytest.skip("needs ray: pip install 'roseinfer[ray]'")
    port = free_port()
    file = tmp_path / "applications.yaml"
    file.write_text(yaml.safe_dump(applications(port)))
    folder = tempfile.mkdtemp(prefix="ray-")
    environment = clean_environment() | {
        "PYTHONPATH": str(ROOT),
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": EDGE,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
    }
    program = Path(sys.executable).with_name("serve")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "run", file], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_file_of_the_documentation_serves_two_models(command):
    def status(prefix: str) -> int:
        try:
            with Connection("127.0.0.1", command, timeout=PATIENCE) as connection:
                return connection.request("POST", prefix + CHAT, chat(3)).status
        except OSError:
            return 0

    for prefix in ("/small", "/big"):
        eventually(lambda prefix=prefix: status(prefix) == 200, timeout=PATIENCE, interval=0.5)
    assert status("") == 404
