"""Request: one turn of a conversation, and what becomes of it."""

from __future__ import annotations

from typing import Protocol


class Conversation(Protocol):
    """A client that sends turns, one after another; each prompt continues the last one.

    ``key`` is the hash by which a front chooses a replica. All conversations of a ``kind`` have the
    first ``num_shared`` tokens of their prompts in common. A conversation is itself a key of
    dictionaries, by identity.
    """

    @property
    def key(self) -> int: ...

    @property
    def kind(self) -> int: ...

    @property
    def num_shared(self) -> int: ...

    def __hash__(self) -> int: ...

    def next_turn(self) -> tuple[int, int] | None:
        """Tokens of the next prompt and of its answer; None at the end of the conversation."""

    def then(self) -> tuple[float, Conversation] | None:
        """After an answer: who asks next, and after how many seconds."""


class Request:
    """One turn. Times are in seconds of the simulated clock, and -1 before they are known.

    The first ``num_shared`` tokens of the prompt are those of its conversation's ``kind``; the rest
    is its own, and continues the prompt and the answer of the conversation's last request.
    """

    __slots__ = (
        "arrival",
        "conversation",
        "end",
        "first_token",
        "num_cached",
        "num_computed",
        "num_output",
        "num_prompt",
        "replica",
    )

    def __init__(
        self, conversation: Conversation, num_prompt: int, num_output: int, arrival: float
    ) -> None:
        self.conversation = conversation
        self.num_prompt = num_prompt
        self.num_output = num_output
        self.arrival = arrival
        self.replica = -1
        self.num_cached = 0
        """Tokens of the prompt that were found in the prefix cache."""
        self.num_computed = 0
        """Tokens whose keys and values are there, cached ones included. Up to the end of the prompt
        only."""
        self.first_token = -1.0
        self.end = -1.0

    @property
    def num_pending(self) -> int:
        """Tokens of the prompt that are left to compute."""
        return self.num_prompt - self.num_computed

    @property
    def num_kept(self) -> int:
        """Tokens with keys and values at its end: all but the last one that was sampled."""
        return self.num_prompt + self.num_output - 1

    @property
    def ttft(self) -> float:
        return self.first_token - self.arrival

    @property
    def tpot(self) -> float:
        """Seconds per token after the first one; 0 for an answer of one token."""
        return (self.end - self.first_token) / max(1, self.num_output - 1)
