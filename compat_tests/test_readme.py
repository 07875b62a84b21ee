"""README shows what the server prints. Its commands are run by test_snippets.py."""

import re

from compat_tests.support.process import ROOT, ServerProcess

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
OUTPUT = [text for language, text in BLOCKS if language == "text" and "Listening on" in text]

ADDRESS = "127.0.0.1:8000"


def test_readme_shows_the_output_once() -> None:
    assert len(OUTPUT) == 1


def test_the_shown_output_is_what_the_server_prints(server: ServerProcess) -> None:
    """Up to the port, and the room in the cache, which depends on the machine's memory."""

    def comparable(text: str) -> str:
        text = re.sub(r"127\.0\.0\.1:\d+", ADDRESS, text)
        return re.sub(r"room for \d+", "room for N", text).strip()

    assert comparable(server.stdout) == comparable(OUTPUT[0])
