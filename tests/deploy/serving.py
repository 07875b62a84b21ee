"""An installed program: it starts, answers and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

from compat_tests.support.process import loopback_only

START_TIMEOUT = 300.0
"""Seconds until the server is ready; in an empty home it compiles the kernels first."""


def clean_environ() -> dict[str, str]:
    """The environment without flags of roseinfer, and without this repository's packages."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("ROSEINFER_", "PYTHONPATH"))}


def check_serves(command: list[str], folder: Path) -> None:
    """Start the server with an empty home in ``folder``, ask it, and end it."""
    home = folder / "home"
    home.mkdir()
    with loopback_only(), contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [*command, "--port", "0"],
                cwd=home,
                env=clean_environ()
                | {"HOME": str(home), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        timer = threading.Timer(4 * START_TIMEOUT, process.kill)  # kernels are compiled first
        timer.start()
        stack.callback(timer.cancel)
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("Serving "):
                break
        assert "Serving " in printed
        url = printed.split()[printed.split().index("on") + 1].rstrip(",")
        check_answer(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def check_answer(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body | {"ignore_eos": True}).encode(),
        {"content-type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as reply:
        assert json.load(reply)["usage"]["completion_tokens"] == 8
