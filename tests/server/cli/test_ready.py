"""A server that says that it is ready has nothing left to import for the first answer."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from litestar.testing import TestClient
from core.contract.config import ModelConfig
from server.app.app import create_app
from server.app.edge import with_edge
from server.settings.settings import Settings

settings = Settings(model=ModelConfig(device="cpu"))
ready = threading.Event()
app = create_app(settings, on_event=lambda event: ready.set())
with TestClient(with_edge(app), base_url="http://127.0.0.1") as client:
    assert ready.wait(120)
    client.get("/health")
    before = set(sys.modules)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    for extra in ({}, {"stream": True}):
        assert client.post("/v1/chat/completions", json=body | extra).status_code == 200
    print("imported:", *sorted(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_the_first_answers_import_nothing():
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["imported:"]
