"""The wheel: what it contains, and that it serves without the repository."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = ("bench", "core", "schemas", "server")
START_TIMEOUT = 300.0
"""Seconds until the server is ready; a machine without cached kernels compiles them first."""

BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built offline from a copy of the whole repository, so that no old build/ is used."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "wheels", "*.egg-info")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=folder / "source",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(unpacked) -> Message:
    (file,) = unpacked.glob("*.dist-info/METADATA")
    return Parser().parsestr(file.read_text("utf-8"))


def files_below(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_contains_every_file_of_the_shipped_packages_and_nothing_else(unpacked):
    shipped = {f"{name}/{file}" for name in PACKAGES for file in files_below(ROOT / name)}
    found = files_below(unpacked)
    assert {file for file in found if ".dist-info/" not in file} == shipped
    assert {"core/builtin_model/weights/model.safetensors"} <= found
    assert {"server/ui/static/index.html", "server/ui/static/lib/api.js"} <= found
    assert {
        "core/kernels/cpu/source/linear/linear.cpp",
        "core/kernels/cpu/source/simd/vec.h",
    } <= found


def test_the_wheel_names_its_license_and_its_program(unpacked, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    (license_file,) = unpacked.glob("*.dist-info/licenses/LICENSE")
    assert license_file.read_bytes() == (ROOT / "LICENSE").read_bytes()
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser()
    parser.read(entry_points)
    assert dict(parser["console_scripts"]) == {"roseinfer": "server.cli.main:main"}


PYTHON = (sys.executable, "-S", "-P")
"""``-S`` skips .pth files, and so an editable installation of the repository; ``-P`` keeps the
current folder off the path."""


def environment_of(packages: Path) -> dict[str, str]:
    """Roseinfer comes from ``packages``; third-party packages come from this environment."""
    others = [entry for entry in sys.path if entry and Path(entry).resolve() != ROOT]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROSEINFER_")}
    return clean | {"PYTHONPATH": os.pathsep.join([str(packages), *others])}


@contextlib.contextmanager
def serving(packages: Path, folder: Path) -> Iterator[str]:
    """Run ``python -m server serve`` in another folder; gives the base URL."""
    log = folder / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*PYTHON, "-m", "server", "serve", "--port", "0"],
            cwd=folder,
            env=environment_of(packages) | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    timer = threading.Timer(START_TIMEOUT, process.kill)
    timer.start()
    with process:
        try:
            assert process.stdout is not None
            url = ""
            for line in process.stdout:
                if line.startswith("Listening on "):
                    url = line.split()[2].rstrip(",")
                if line.startswith("Serving "):
                    break
            else:
                raise AssertionError(f"ended with {process.wait()}: {log.read_text()}")
            yield url
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(30) == 0, log.read_text()
            assert "Traceback" not in log.read_text()
        finally:
            timer.cancel()
            process.kill()


def test_the_wheel_alone_serves_a_request(unpacked, tmp_path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8}
    with serving(unpacked, tmp_path) as url:
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with opener.open(request, timeout=60) as reply:
            answer = json.load(reply)
        for path in ("/", "/ui/app.js", "/ui/css/design.css"):
            with opener.open(url + path, timeout=60) as reply:
                assert reply.read()
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0


def test_the_environment_of_these_tests_imports_only_from_the_wheel(unpacked, tmp_path):
    names = ", ".join(PACKAGES)
    program = (
        f"import {names}; print(*(m.__spec__.submodule_search_locations[0] for m in ({names})))"
    )
    found = subprocess.run(
        [*PYTHON, "-c", program],
        cwd=tmp_path,
        env=environment_of(unpacked),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [str(unpacked / name) for name in PACKAGES]
