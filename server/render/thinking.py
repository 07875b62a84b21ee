"""Counting the tokens that a model thinks with."""

from __future__ import annotations

from collections.abc import Callable

from core.contract.messages import StepOutput
from core.contract.params import Thinking


class ThinkingCounter:
    """Counts one choice's thinking tokens, its tags included. Linear in the tokens fed.

    The tags are looked for in the bytes of the tokens, as a model may write them in several ways.
    """

    def __init__(self, thinking: Thinking, token_bytes: Callable[[int], bytes]) -> None:
        self.count = 0
        self._begin = thinking.begin.encode()
        self._end = thinking.end.encode()
        self._token_bytes = token_bytes
        self._has_begun = thinking.is_open
        self._is_over = False
        self._num_seen = 0
        self._tail = b""  # in which a tag may have begun

    def feed(self, output: StepOutput) -> None:
        """Take in the choice's next output."""
        for token_id in output.token_ids:
            if self._is_over:
                return
            self._see(token_id)

    def _see(self, token_id: int) -> None:
        self._num_seen += 1
        tail = self._tail + self._token_bytes(token_id)
        if not self._has_begun:
            self._tail = tail = tail.lstrip()
            if not tail.startswith(self._begin):
                self._is_over = not self._begin.startswith(tail)
                return
            self._has_begun = True
            tail = tail.removeprefix(self._begin)
        self.count = self._num_seen
        self._is_over = self._end in tail
        self._tail = tail[-len(self._end) :]
