"""The examples of README, run as they stand against a live server."""

import re
import shutil
import subprocess
import sys

import pytest

from compat_tests.support.process import ROOT, ServerProcess

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = [text for language, text in BLOCKS if language == "python"]
CURL = [text for language, text in BLOCKS if language == "sh" and text.startswith("curl ")]
OUTPUT = [text for language, text in BLOCKS if language == "text" and "Listening on" in text]

ADDRESS = "127.0.0.1:8000"


def run(server: ServerProcess, command: list[str], text: str) -> str:
    """What an example prints when it is asked of this server."""
    assert ADDRESS in text
    text = text.replace(ADDRESS, f"{server.host}:{server.port}")
    result = subprocess.run(
        [*command, text], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_readme_has_examples_and_output() -> None:
    assert (len(PYTHON), len(CURL), len(OUTPUT)) == (1, 1, 1)


def test_the_sdk_example_prints_an_answer(server: ServerProcess) -> None:
    assert run(server, [sys.executable, "-c"], PYTHON[0]).strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_example_streams_an_answer(server: ServerProcess) -> None:
    printed = run(server, ["sh", "-c"], CURL[0].replace("curl ", "curl --silent --fail ", 1))
    assert printed.startswith("data: {")
    assert printed.endswith("data: [DONE]\n\n")


def test_the_shown_output_is_what_the_server_prints(server: ServerProcess) -> None:
    """Up to the port, and the room in the cache, which depends on the machine's memory."""

    def comparable(text: str) -> str:
        text = re.sub(r"127\.0\.0\.1:\d+", ADDRESS, text)
        return re.sub(r"room for \d+", "room for N", text).strip()

    assert comparable(server.stdout) == comparable(OUTPUT[0])
