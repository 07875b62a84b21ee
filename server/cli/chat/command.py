"""run: ``roseinfer chat``, from its settings to its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

from server.cli.chat.chat import Chat
from server.cli.chat.client import ChatClient, KeyRefusedError, StartError
from server.cli.chat.flags import PASSED_ON, ChatSettings
from server.cli.chat.markdown import visible
from server.cli.chat.terminal import MarkdownScreen, PlainScreen, Prompt
from server.settings.flags import ENV_PREFIX

STOP_TIMEOUT = 10.0  # seconds in which the server may end by itself
DEFAULT_URL = "http://127.0.0.1:8000/v1"  # of ``roseinfer serve`` without flags
INTERRUPTED = 128 + signal.SIGINT  # the exit code after Ctrl-C while the chat starts


def run(settings: ChatSettings) -> int:
    """Chat until the input ends; return the exit code.

    It is 1 if an answer or a command failed where the input is no terminal, 2 if there is no
    server, and that of a private server that ended before it was ready.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_terminal = sys.stdout.isatty()
    is_plain = settings.plain or not is_terminal
    screen = PlainScreen(is_terminal=is_terminal) if is_plain else MarkdownScreen()
    prompt = Prompt()
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
    url = settings.base_url
    if url is None and settings.model is None and not settings.serve and _answers(DEFAULT_URL):
        url = DEFAULT_URL
    if url is not None:
        with closing(ChatClient(url, settings.api_key)) as client:
            yield client, settings.model or client.served_model(), f"at {url}"
        return
    with (
        _private_server(settings.model, settings.serve) as path,
        closing(ChatClient("http://localhost/v1", path=path)) as client,
    ):
        yield client, client.served_model(), "on a private server"


@contextmanager
def _private_server(model: str | None, flags: tuple[str, ...]) -> Iterator[str]:
    """``roseinfer serve`` on a Unix socket in a folder that only this user can enter: its path.

    It has a session of its own, so that Ctrl-C in the terminal reaches the chat alone, and it ends
    with this process, whichever way that ends. Its progress bar goes to stderr. Raises StartError
    if it ends before it serves; it has said why.
    """
    with tempfile.TemporaryDirectory(
        prefix="roseinfer-chat-", ignore_cleanup_errors=True
    ) as folder:
        path = f"{folder}/socket"
        arguments = [] if model is None else [model]
        arguments += ["--uds", path, "--log-level", "warning", *flags]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in PASSED_ON or not name.startswith(ENV_PREFIX)
        }
        with subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "server.cli.with_parent", str(os.getpid()), *arguments],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                if not any(line.startswith("Serving ") for line in process.stdout or ()):
                    code = process.wait()
                    message = f"the private server ended with code {code}"
                    raise StartError(message, code=code if code > 0 else 1)
                yield path
            finally:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _answers(url: str) -> bool:
    """Whether a server lists models there, with or without a key."""
    try:
        with closing(ChatClient(url)) as client:
            client.served_model()
    except KeyRefusedError:
        return True
    except StartError:
        return False
    return True
