"""run: ``roseinfer chat``, from its settings to its exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from server.chat.chat import Chat
from server.chat.client import ChatClient
from server.chat.errors import KeyRefusedError, StartError
from server.chat.flags import ChatSettings
from server.chat.markdown import visible
from server.chat.private_server import PrivateServer
from server.chat.prompt import Prompt, history_path
from server.chat.screen import screen_for

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
