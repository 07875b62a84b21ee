"""run: ``roseinfer chat``, from its settings to its exit code.

PrivateServer: a server of one model, for one user, that ends with its chat.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from server.cli.chat.chat import Chat
from server.cli.chat.client import ChatClient
from server.cli.chat.errors import KeyRefusedError, StartError
from server.cli.chat.flags import PASSED_ON, ChatSettings
from server.cli.chat.markdown import visible
from server.cli.chat.prompt import Prompt, history_path
from server.cli.chat.screen import screen_for
from server.settings.flags import ENV_PREFIX

STOP_TIMEOUT = 10.0
"""Seconds in which the server may end by itself."""


class PrivateServer:
    """``roseinfer serve`` on a Unix socket in a folder that only this user can enter.

    It has a session of its own, so that Ctrl-C in the terminal reaches the chat alone, and it ends
    with this process, whichever way that ends. Its progress bar goes to stderr.
    """

    def __init__(self, model: str | None, flags: tuple[str, ...]) -> None:
        self._folder = tempfile.mkdtemp(prefix="roseinfer-chat-")
        self.path = str(Path(self._folder) / "socket")
        arguments = [] if model is None else [model]
        arguments += ["--uds", self.path, "--log-level", "warning", *flags]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in PASSED_ON or not name.startswith(ENV_PREFIX)
        }
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "server.cli.with_parent", str(os.getpid()), *arguments],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        """Wait until it serves. Raises StartError if it ends instead; it has said why."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("Serving "):
                return
        code = self._process.wait()
        raise StartError(f"the private server ended with code {code}", code=code if code > 0 else 1)

    def close(self) -> None:
        """End it. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


DEFAULT_URL = "http://127.0.0.1:8000/v1"
"""Where ``roseinfer serve`` listens by default."""

INTERRUPTED = 130
"""The exit code after Ctrl-C while the chat starts: 128 and the signal's number."""


def run(settings: ChatSettings) -> int:
    """Chat until the input ends; return the exit code.

    It is 1 if an answer or a command failed where the input is no terminal, 2 if there is no
    server, and that of a private server that ended before it was ready.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    screen = screen_for(plain=settings.plain)
    prompt = Prompt(history_path())
    try:
        with _connected(settings) as (client, model, where):
            if prompt.is_terminal:
                screen.note(f"{model} {where}. /help lists the commands.")
            chat = Chat(settings, client, model, prompt, screen)
            chat.run()
    except StartError as error:
        print(f"roseinfer: {visible(str(error))}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 1 if chat.has_failed and not prompt.is_terminal else 0


@contextmanager
def _connected(settings: ChatSettings) -> Iterator[tuple[ChatClient, str, str]]:
    """A client, the model to talk to, and where it is, in words. Raises StartError."""
    with ExitStack() as stack:
        url = settings.base_url
        if url is None and settings.model is None and not settings.serve and _answers(DEFAULT_URL):
            url = DEFAULT_URL
        if url is None:
            server = stack.enter_context(PrivateServer(settings.model, settings.serve))
            server.wait_ready()
            client = ChatClient("http://localhost/v1", path=server.path)
            where, model = "on a private server", None
        else:
            client = ChatClient(url, settings.api_key)
            where, model = f"at {url}", settings.model
        stack.callback(client.close)
        yield client, model or client.served_model(), where


def _answers(url: str) -> bool:
    """Whether a server lists models there, with or without a key."""
    client = ChatClient(url)
    try:
        client.served_model()
    except KeyRefusedError:
        return True
    except StartError:
        return False
    finally:
        client.close()
    return True
