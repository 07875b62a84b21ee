"""`roseinfer chat` on a real terminal and in pipes, against live servers."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.support.process import QUIET, ROOT, ServerProcess
from compat_tests.support.terminal import CTRL_C, CTRL_D, Terminal
from compat_tests.support.waiting import eventually

WEIGHTS = ROOT / "core" / "builtin_model" / "weights"


@pytest.fixture
def home(tmp_path) -> dict[str, str]:
    """An environment with a cache directory of its own, where the history goes."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def talk_to(server, home, *flags: str) -> Terminal:
    return Terminal("chat", "--base-url", f"{server.url}/v1", *flags, env=home)


def piped(text: str, *arguments: str, env=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server", "chat", *arguments],
        cwd=ROOT,
        env=os.environ | QUIET | (env or {}),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_conversation_on_a_terminal(server, home, tmp_path) -> None:
    file = tmp_path / "chat.json"
    with talk_to(server, home, "--max-tokens", "12") as terminal:
        terminal.wait_for(f"{server.model} at {server.url}/v1.")
        terminal.wait_for(">>> ")
        terminal.type("Hello!\n")
        rates = terminal.wait_for("to the first").splitlines()[-1]
        assert re.search(r"\d+ tokens in the prompt, \d+ tokens, \d", rates), rates
        terminal.wait_for(">>> ")
        terminal.type("/retry\n")
        terminal.wait_for("to the first")
        terminal.wait_for(">>> ")
        terminal.type("/system Be brief.\n")
        terminal.wait_for("The system prompt is set.")
        terminal.wait_for(">>> ")
        terminal.type(f"/save {file}\n")
        terminal.wait_for("Saved to")
        terminal.wait_for(">>> ")
        terminal.type("/nonsense\n")
        terminal.wait_for("there is no command /nonsense")
        terminal.wait_for(">>> ")
        terminal.type(CTRL_D)
        assert terminal.wait_exit() == 0
    saved = json.loads(file.read_text())
    assert [turn["role"] for turn in saved["messages"]] == ["user", "assistant"]
    assert saved["messages"][0]["content"] == "Hello!"
    assert saved["system"] == "Be brief."
    history = tmp_path / "cache" / "roseinfer" / "chat_history"
    assert "Hello!" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def endless_server(tmp_path_factory):
    """The built-in model without an end token: its answers fill the context."""
    folder = tmp_path_factory.mktemp("endless") / "model"
    shutil.copytree(WEIGHTS, folder)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(config | {"eos_token_id": None}))
    server = ServerProcess(str(folder))
    try:
        yield server.wait_ready()
    finally:
        server.stop()


def test_ctrl_c_stops_the_answer_and_a_second_one_leaves(endless_server, home) -> None:
    """The server sees that its client has left: the request ends within moments."""
    server = endless_server
    with talk_to(server, home) as terminal:
        terminal.wait_for(">>> ")
        terminal.type("Tell me a very long story.\n")
        eventually(lambda: server.stats()["num_running"] == 1, timeout=30, what="a running request")
        terminal.type(CTRL_C)
        terminal.wait_for("stopped; ")
        eventually(lambda: server.stats()["num_running"] == 0, timeout=10, what="the abort")
        assert server.stats()["num_output_tokens"] < server.max_model_len - 100
        terminal.wait_for(">>> ")
        terminal.type(CTRL_C)
        assert terminal.wait_exit() == 0


def test_a_chat_in_pipes(server, home, tmp_path) -> None:
    """Every line is a message; only answers go to stdout."""
    url = ("--base-url", f"{server.url}/v1", "--max-tokens", "5")
    done = piped(f"Hello!\n/retry\n/save {tmp_path}/x.json\n", *url, env=home)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    answers = json.loads((tmp_path / "x.json").read_text())["messages"][1::2]
    assert len(answers) == 1
    assert answers[0]["content"].rstrip("\n") in done.stdout
    assert "Saved to" in done.stderr
    assert "Saved to" not in done.stdout


def test_a_failed_answer_in_a_pipe_is_code_1(guarded_server, home) -> None:
    url = f"{guarded_server.url}/v1"
    done = piped("Hello!\n", "nobody", "--base-url", url, "--api-key", "key-one", env=home)
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    refused = piped("Hello!\n", "--base-url", url, env=home)
    assert refused.returncode == 2
    assert "401" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_server_that_is_not_there_is_one_line_and_code_2(home) -> None:
    done = piped("Hello!\n", "--base-url", "http://127.0.0.1:9/v1", env=home)
    assert done.returncode == 2
    assert done.stderr.startswith("roseinfer: cannot reach http://127.0.0.1:9/v1")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_private_server_starts_and_ends_with_the_chat(home) -> None:
    with Terminal("chat", str(WEIGHTS), "--max-tokens", "5", env=home) as terminal:
        terminal.wait_for("weights on a private server.", timeout=120)
        terminal.wait_for(">>> ")
        [child] = children_of(terminal.process.pid)
        terminal.type("Hello!\n")
        terminal.wait_for("to the first")
        terminal.wait_for(">>> ")
        terminal.type("/quit\n")
        assert terminal.wait_exit() == 0
    assert not Path(f"/proc/{child}").exists()


def test_a_private_server_ends_when_its_chat_is_killed(home) -> None:
    with Terminal("chat", str(WEIGHTS), env=home) as terminal:
        terminal.wait_for("on a private server.", timeout=120)
        [child] = children_of(terminal.process.pid)
    eventually(lambda: not Path(f"/proc/{child}").exists(), timeout=20, what="the end")


def test_a_private_server_that_cannot_start_says_why(home, tmp_path) -> None:
    done = piped("Hello!\n", str(tmp_path), env=home)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
