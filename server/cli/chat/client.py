"""ChatClient: asks a server for answers, piece by piece; the private server of a chat."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from server.cli.chat.flags import PASSED_ON, ChatSettings
from server.settings.flags import ENV_PREFIX

CONNECT_TIMEOUT = 10.0
"""Seconds. An answer may take any time: the server sends comments while it waits."""

STOP_TIMEOUT = 10.0  # seconds in which a private server may end by itself
_PR_SET_PDEATHSIG = 1  # of prctl(2)
DEFAULT_URL = "http://127.0.0.1:8000/v1"  # of ``roseinfer serve`` without flags


class ChatError(Exception):
    """The server cannot be reached, refuses a request, or breaks an answer off."""


class StartError(ChatError):
    """No server answers, or one that wants another key. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 2, *, wants_key: bool = False) -> None:
        super().__init__(message)
        self.code, self.wants_key = code, wants_key


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer: visible text, or the thinking before it."""

    text: str = ""
    thinking: str = ""


@dataclass(slots=True)
class Ending:
    """The end of an answer: the server's counts and finish reason, if it gave them."""

    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class ChatClient:
    """Requests to one server. ``path`` is that of its Unix socket, if it listens on one."""

    def __init__(self, base_url: str, api_key: str | None = None, path: str | None = None) -> None:
        """Raises StartError if the URL is not one."""
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        transport = None if path is None else httpx.HTTPTransport(uds=path)
        timeout = httpx.Timeout(CONNECT_TIMEOUT, read=None)
        self.base_url = base_url
        try:
            self._http = httpx.Client(
                base_url=base_url, headers=headers, transport=transport, timeout=timeout
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise StartError(f"{base_url} is not the URL of a server: {error}") from error

    def close(self) -> None:
        self._http.close()

    def served_model(self) -> str:
        """The first model that the server lists. Raises StartError."""
        try:
            reply = self._http.get("models", timeout=CONNECT_TIMEOUT)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise StartError(f"cannot reach {self.base_url}: {_reason(error)}") from error
        if reply.status_code != 200:
            message = f"{self.base_url}/models: {_message(reply)}"
            raise StartError(message, wants_key=reply.status_code == 401)
        try:
            model: str = msgspec.json.decode(reply.content)["data"][0]["id"]
        except (msgspec.MsgspecError, LookupError, TypeError):
            raise StartError(f"{self.base_url}/models lists no model") from None
        return model

    def answer(self, body: dict[str, Any], ending: Ending) -> Generator[Piece]:
        """Yield the pieces of an answer as they come. Raises ChatError.

        Closing the iterator closes the connection, by which the server sees that its client has
        left. ``ending`` is filled in when the answer is complete.
        """
        body = body | {"stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._http.stream("POST", "chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    reply.read()
                    raise ChatError(_message(reply))
                yield from _pieces(reply, ending)
        except httpx.HTTPError as error:
            raise ChatError(f"the connection broke: {_reason(error)}") from error
        if ending.finish_reason is None:
            raise ChatError("the answer ended without a finish reason")


def _pieces(reply: httpx.Response, ending: Ending) -> Iterator[Piece]:
    for line in _lines(reply):
        if not line.startswith(b"data:"):
            continue  # a comment, or the end of an event
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except msgspec.MsgspecError as error:
            raise ChatError(f"the server sent no chunk: {error}") from error
        if chunk.error is not None:
            raise ChatError(_text(chunk.error))
        if chunk.usage is not None:
            ending.prompt_tokens = chunk.usage.prompt_tokens
            ending.completion_tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            ending.finish_reason = choice.finish_reason or ending.finish_reason
            delta = choice.delta
            thinking = delta.reasoning_content or delta.reasoning or ""
            if delta.content or thinking:
                yield Piece(delta.content or "", thinking)


def _lines(reply: httpx.Response) -> Iterator[bytes]:
    """The whole lines of a body. httpx would end some at U+0085 or U+2028, which JSON may have."""
    rest = b""
    for piece in reply.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def _message(reply: httpx.Response) -> str:
    """The message of an error's body, in one line."""
    try:
        said = msgspec.json.decode(reply.content)
    except msgspec.MsgspecError:
        said = reply.text
    text = _text(said.get("error", said) if isinstance(said, dict) else said)
    return f"HTTP {reply.status_code}: {text}"


def _text(error: Any) -> str:
    text = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(text).split())[:500]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def connected(settings: ChatSettings) -> Iterator[tuple[ChatClient, str, str]]:
    """A client, the model to talk to, and where it is, in words. Raises StartError."""
    url = settings.base_url
    if url is None and settings.model is None and not settings.serve and answers_at(DEFAULT_URL):
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

    It has a session of its own, so that Ctrl-C reaches the chat alone, and ends with this process,
    whichever way that ends. Raises StartError if it ends before it serves; it has said why.
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
            [sys.executable, "-m", "server", "serve", *arguments],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # elsewhere the server outlives a chat that is killed
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
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


def _end_with_parent() -> None:
    """Runs in the server before its program: the kernel sends SIGTERM when the chat ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def answers_at(url: str) -> bool:
    """Whether a server lists models there, with or without a key."""
    try:
        with closing(ChatClient(url)) as client:
            client.served_model()
    except StartError as error:
        return error.wants_key
    return True
