"""Transcript: the messages of a chat, which may be saved and loaded."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from server.cli.chat.errors import ChatError


class TerminalMessage(msgspec.Struct, frozen=True):
    """A turn."""

    role: Literal["user", "assistant"]
    content: str


class SavedChat(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The form of a file. ``messages`` are as in a request of /v1/chat/completions."""

    messages: list[TerminalMessage]
    model: str = ""
    system: str | None = None


class Transcript:
    """Turns of user and model, alternating, and a system prompt."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.messages: list[TerminalMessage] = []

    def request(self, question: str) -> list[dict[str, str]]:
        """Return the messages of a request that asks this next."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        past = [{"role": turn.role, "content": turn.content} for turn in self.messages]
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

    def clear(self) -> None:
        """Forget all turns, not the system prompt."""
        self.messages = []

    def save(self, path: Path, model: str) -> None:
        """Write a file, whole or not at all. Raises ChatError."""
        saved = SavedChat(self.messages, model, self.system)
        text = msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n"
        try:
            number, name = tempfile.mkstemp(dir=path.parent, prefix=".roseinfer-chat-")
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(text)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink()
                raise
        except OSError as error:
            raise ChatError(f"cannot write {path}: {error.strerror}") from error

    def load(self, path: Path) -> None:
        """Continue the conversation of a file. Raises ChatError and changes nothing then."""
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=SavedChat)
        except OSError as error:
            raise ChatError(f"cannot read {path}: {error.strerror}") from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ChatError(f"{path} is not a saved chat: {error}") from error
        roles = [turn.role for turn in saved.messages]
        if roles != ["user", "assistant"] * (len(roles) // 2):
            raise ChatError(f"{path} is not a saved chat: user and assistant do not alternate")
        self.messages, self.system = list(saved.messages), saved.system
