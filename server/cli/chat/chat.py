"""Chat: questions, answers, and commands that begin with a slash."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from server.cli.chat.client import ChatClient, ChatError, Ending, StartError, connected
from server.cli.chat.flags import ChatSettings
from server.cli.chat.terminal import MarkdownScreen, PlainScreen, Prompt, visible

INTERRUPTED = 128 + signal.SIGINT  # the exit code after Ctrl-C while the chat starts


class TerminalMessage(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: str


class Transcript(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Turns of user and model, alternating, and a system prompt. It is also the form of a file."""

    messages: list[TerminalMessage]
    model: str = ""
    system: str | None = None

    def request(self, question: str) -> list[dict[str, str]]:
        """Return the messages of a request that asks this next."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        past = msgspec.to_builtins(self.messages)
        return [*system, *past, {"role": "user", "content": question}]

    def add(self, question: str, answer: str) -> None:
        """Keep a question with its answer, which may be a part of one."""
        self.messages += [TerminalMessage("user", question), TerminalMessage("assistant", answer)]

    def take_back(self) -> str | None:
        """Remove the last question and its answer; return the question, None if there is none."""
        if len(self.messages) < 2:
            return None
        *self.messages, question, _ = self.messages
        return question.content

    def save(self, path: Path) -> None:
        """Write a file, whole or not at all. Raises ChatError."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        try:
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".roseinfer-chat-") as folder:
                file = Path(folder) / "chat"
                file.touch(mode=0o600)
                file.write_bytes(text)
                file.replace(path)
        except OSError as error:
            raise ChatError(f"cannot write {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file. Raises ChatError."""
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise ChatError(f"cannot read {path}: {error.strerror}") from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ChatError(f"{path} is not a saved chat: {error}") from error
        roles = [turn.role for turn in saved.messages]
        if roles != ["user", "assistant"] * (len(roles) // 2):
            raise ChatError(f"{path} is not a saved chat: user and assistant do not alternate")
        return saved


class ChatSpeed:
    """Times of one answer. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._pieces: list[float] = []

    def piece(self) -> None:
        """A piece with text has come."""
        self._pieces.append(self._clock())

    def line(self, ending: Ending) -> str:
        """Say it in one line. Without the server's count, pieces are counted and marked so."""
        if not self._pieces:
            return "no text"
        first, last = self._pieces[0], self._pieces[-1]
        count = ending.completion_tokens
        about = "" if count is not None else "about "
        count = len(self._pieces) if count is None else count
        parts = [f"{about}{count:,} tokens", f"{first - self._start:.2f} s to the first"]
        seconds = last - first
        if count > 1 and seconds > 0:
            parts.append(f"{about}{(count - 1) / seconds:,.1f} tokens/s")
        if ending.prompt_tokens is not None:
            parts.insert(0, f"{ending.prompt_tokens:,} tokens in the prompt")
        return ", ".join(parts)


HELP = """\
/system TEXT   set the system prompt; without TEXT remove it
/retry         take the last answer back and ask again
/clear         forget the conversation, not the system prompt
/save FILE     write the conversation to a file
/load FILE     continue the conversation of a file
/help          show this
/quit          leave, as Ctrl-D does
Ctrl-C stops an answer; at the prompt it leaves. Begin a message of several lines
with three quotes, and end it with three. A space before a slash sends it."""


class Chat:
    def __init__(
        self,
        settings: ChatSettings,
        client: ChatClient,
        model: str,
        prompt: Prompt,
        screen: PlainScreen,
    ) -> None:
        self._settings = settings
        self._client = client
        self._model = model
        self._prompt = prompt
        self._screen = screen
        self._conversation = Transcript([], model, settings.system)
        self._unanswered: str | None = None
        self.has_failed = False  # an answer or a command

    def run(self) -> None:
        with self._prompt.kept_history():
            while True:
                try:
                    line = self._prompt.read()
                except KeyboardInterrupt:
                    self._screen.note("")
                    return
                if line is None or line.strip() == "/quit":
                    return
                try:
                    if line.startswith("/"):
                        name, _, rest = line[1:].partition(" ")
                        self._obey(name.strip(), rest.strip())
                    elif line.strip():
                        self._ask(line.strip())
                except ChatError as error:
                    self.has_failed = True
                    self._screen.error(str(error))

    def _obey(self, name: str, rest: str) -> None:
        match name:
            case "help":
                self._screen.note(HELP)
            case "system":
                self._conversation.system = rest or None
                self._screen.note("The system prompt is " + ("set." if rest else "removed."))
            case "retry":
                question = self._unanswered or self._conversation.take_back()
                if question is None:
                    raise ChatError("there is nothing to ask again")
                self._ask(question)
            case "clear":
                self._conversation.messages = []
                self._unanswered = None
                self._screen.note("The conversation is forgotten.")
            case "save":
                self._conversation.save(_path(rest, name))
                self._screen.note(f"Saved to {rest}.")
            case "load":
                self._conversation = Transcript.load(_path(rest, name))
                self._conversation.model = self._model
                self._unanswered = None
                num_turns = len(self._conversation.messages)
                self._screen.note(f"Loaded {num_turns} messages from {rest}.")
            case _:
                raise ChatError(f"there is no command /{name}; /help lists them")

    def _ask(self, question: str) -> None:
        """Ask, and show the answer. Ctrl-C ends it, and with it the request."""
        ending, rates, parts = Ending(), ChatSpeed(), list[str]()
        self._unanswered = question
        is_stopped = False
        try:
            with closing(self._client.answer(self._body(question), ending)) as pieces:
                for piece in pieces:
                    rates.piece()
                    if piece.thinking:
                        self._screen.thinking(piece.thinking)
                    if piece.text:
                        parts.append(piece.text)
                        self._screen.text(piece.text)
        except KeyboardInterrupt:
            is_stopped = True
        finally:
            self._screen.end()
            if parts:  # a part of an answer is kept: the user has seen it
                self._conversation.add(question, "".join(parts))
                self._unanswered = None
        if self._prompt.is_terminal:
            cut = {"length": "cut at the limit of tokens; "}.get(ending.finish_reason or "", "")
            self._screen.note(("stopped; " if is_stopped else cut) + rates.line(ending))

    def _body(self, question: str) -> dict[str, Any]:
        given = {"temperature": self._settings.temperature, "max_tokens": self._settings.max_tokens}
        return {
            "model": self._model,
            "messages": self._conversation.request(question),
            **{name: value for name, value in given.items() if value is not None},
        }


def _path(text: str, command: str) -> Path:
    if not text:
        raise ChatError(f"name a file: /{command} FILE")
    return Path(text).expanduser()


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
        with connected(settings) as (client, model, where):
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
