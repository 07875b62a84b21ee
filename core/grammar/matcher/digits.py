"""DigitLimit: numbers in JSON end. llguidance allows any number of digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

MAX_DIGITS = 40
"""Digits in a row after which no token may begin with another one, before the point, after it, and
in the exponent. Every int64 and double can be written with fewer."""

_DIGITS = b"0123456789"
_IN_NUMBERS = b".eE+-"
_IN_STRINGS = bytes(
    {*b'"\\', *range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)} - {*b"eE"}
)

Words = npt.NDArray[np.int32]


class DigitLimit:
    """Takes digits from the mask of a token that would go on with a long number. Immutable.

    The mask shows where the output is: in a number neither a quote nor a letter but ``e`` may
    follow, and something may end it. If nothing may, the digits stay: a constant or a
    ``multipleOf`` wants more.
    """

    def __init__(self, tokens: Sequence[bytes], end_ids: Iterable[int]) -> None:
        """``tokens`` are the bytes of every id of the model."""
        self._tails: dict[int, tuple[int, bool]] = {}
        kinds = np.zeros((3, -(-len(tokens) // 32) * 32), dtype=np.bool_)
        first_kinds = {first: _kind(first) for first in range(256)}
        for token_id, token in enumerate(tokens):
            if not token:
                continue
            kind = first_kinds[token[0]]
            if kind is not None:
                kinds[kind, token_id] = True
            num_digits = len(token) - len(token.rstrip(_DIGITS))
            if num_digits:
                self._tails[token_id] = num_digits, num_digits == len(token)
        kinds[:, list(end_ids)] = [[False], [False], [True]]
        packed = np.packbits(kinds, axis=1, bitorder="little").view(np.int32)
        self._digits, self._strings, self._ends = packed

    def apply(self, token_ids: Sequence[int], words: Words) -> None:
        """Change the packed mask of the token after ``token_ids``."""
        if not token_ids or token_ids[-1] not in self._tails:
            return
        if self._num_digits(token_ids) < MAX_DIGITS or np.any(words & self._strings):
            return
        others = words & ~self._digits
        if np.any(others & self._ends):
            words[:] = others

    def _num_digits(self, token_ids: Sequence[int]) -> int:
        """Digits at the end, if they are fewer than the limit."""
        num_digits = 0
        for token_id in reversed(token_ids):
            tail, is_whole = self._tails.get(token_id, (0, False))
            num_digits += tail
            if not is_whole or num_digits >= MAX_DIGITS:
                break
        return num_digits


def _kind(first: int) -> int | None:
    """Of a token by its first byte: 0 goes on with digits, 1 with a string, 2 ends a number."""
    if first in _DIGITS:
        return 0
    if first in _IN_NUMBERS:
        return None
    return 1 if first in _IN_STRINGS else 2
