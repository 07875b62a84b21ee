"""ThinkingBudget: the marker that ends the thinking, when there was enough of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch

from core.contract.params import SamplingParams, Thinking
from core.sequence import Sequence


class ThinkingBudget:
    """``thinking.budget``. Once so many tokens were thought, only the end marker's may follow.

    Whether the model is thinking is seen in the bytes of its tokens, as it may write a marker in
    several ways. A marker that an edit before this one excludes is not forced.
    """

    reads_tokens = True

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._watches: weakref.WeakKeyDictionary[Sequence, _Watch] = weakref.WeakKeyDictionary()

    def applies(self, params: SamplingParams) -> bool:
        """Whether thinking is limited."""
        return params.thinking is not None and params.thinking.budget is not None

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Leave the marker's next token alone in the rows that have thought enough."""
        for row, sequence in zip(rows, sequences, strict=True):
            watch = self._watches.get(sequence)
            if watch is None:
                thinking = sequence.params.thinking
                assert thinking is not None
                watch = self._watches[sequence] = _Watch(thinking, self._token_bytes)
            token_id = watch.forced(sequence)
            if token_id is not None and token_id < logits.shape[1]:
                value = logits[row, token_id].clone()
                ended = torch.full_like(logits[row], -torch.inf)
                ended[token_id] = value
                torch.where(value > -torch.inf, ended, logits[row], out=logits[row])


class _Watch:
    """Follows one sequence."""

    __slots__ = ("_is_thinking", "_num_seen", "_num_thought", "_tail", "_thinking", "_token_bytes")

    def __init__(self, thinking: Thinking, token_bytes: Callable[[int], bytes]) -> None:
        self._thinking = thinking
        self._token_bytes = token_bytes
        self._is_thinking = thinking.is_open
        self._num_seen = 0
        self._num_thought = 0
        self._tail = b""

    def forced(self, sequence: Sequence) -> int | None:
        """The token that must come next, if one must."""
        output = sequence.token_ids[sequence.num_prompt_tokens + self._num_seen :]
        self._num_seen += len(output)
        for token_id in output:
            self._see(token_id)
        budget = self._thinking.budget
        if not self._is_thinking or budget is None or self._num_thought < budget:
            return None
        marker = self._thinking.end_token_ids
        token_ids = sequence.token_ids
        for size in range(min(len(marker) - 1, sequence.num_output_tokens), 0, -1):
            if tuple(token_ids[-size:]) == marker[:size]:
                return marker[size]
        return marker[0] if marker else None

    def _see(self, token_id: int) -> None:
        self._num_thought += self._is_thinking
        marker = (self._thinking.end if self._is_thinking else self._thinking.begin).encode()
        text = self._tail + self._token_bytes(token_id)
        if marker in text:
            self._is_thinking = not self._is_thinking
            text = b""
        self._tail = text[-len(marker) :]
