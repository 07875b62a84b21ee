"""ChatError: what ends a chat, or an answer, in one line."""

from __future__ import annotations


class ChatError(Exception):
    """The server cannot be reached, refuses a request, or breaks an answer off."""


class StartError(ChatError):
    """There is nobody to talk to. ``code`` is the exit code; a private server has said why."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class KeyRefusedError(StartError):
    """There is a server, and it wants another key."""
