"""Merges of a SentencePiece vocabulary, which has scores instead.

SentencePiece joins the two neighbours whose joint token has the best score. A list of merges in
the order of the joint token's rank does the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np

from core.contract.errors import ModelLoadError

_MAX_LENGTH = 256
"""Characters of a token; SentencePiece trains with 16."""

_MAX_PAIRS = 8
"""Pairs per token of the vocabulary, beside ``_MIN_PAIRS``; real ones have about two."""

_MIN_PAIRS = 1 << 16

_AT_A_TIME = 1 << 12
"""Pairs whose ids are Python's numbers at a time."""


class Pairs(Sequence[tuple[str, str]]):
    """Pairs of tokens. They are made when asked for: a list of them takes 100 bytes for each."""

    def __init__(self, tokens: Sequence[str], left: np.ndarray, right: np.ndarray) -> None:
        """``left`` and ``right`` are the ids of the tokens of each pair."""
        self._tokens = tokens
        self._left, self._right = left, right

    def __len__(self) -> int:
        return len(self._left)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Pairs: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | Pairs:
        if isinstance(index, slice):
            return Pairs(self._tokens, self._left[index], self._right[index])
        return self._tokens[self._left[index]], self._tokens[self._right[index]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        tokens = self._tokens
        for start in range(0, len(self), _AT_A_TIME):
            part = slice(start, start + _AT_A_TIME)
            for left, right in zip(
                self._left[part].tolist(), self._right[part].tolist(), strict=True
            ):
                yield tokens[left], tokens[right]


class Written(Sequence[tuple[str, str]]):
    """The merges of a file, which are written with a space between the two tokens of a pair.

    What reads one raises ModelLoadError if it has no space after its first character.
    """

    def __init__(self, merges: Sequence[str]) -> None:
        self._merges = merges

    def __len__(self) -> int:
        return len(self._merges)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Written: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | Written:
        merges = self._merges[index]
        return _pair(merges) if isinstance(merges, str) else Written(merges)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return map(_pair, self._merges)


def _pair(merge: str) -> tuple[str, str]:
    at = merge.find(" ", 1)
    if at < 0:
        raise ModelLoadError(f"the merge {merge!r} has no space")
    return merge[:at], merge[at + 1 :]


def merges_of(tokens: Sequence[str], ids: Mapping[str, int], ranks: np.ndarray) -> Pairs:
    """All pairs of tokens that are together a token, the lowest ``ranks`` first.

    ``ranks`` belong to the joint tokens. Among equal ones the pair with the longer left part is
    first, as in transformers' conversion. Raises ModelLoadError for a token that is too long, and
    for more pairs than a vocabulary of this size has.
    """
    most = _MAX_PAIRS * len(tokens) + _MIN_PAIRS
    found = array("i")  # of each pair: the joint token, the length of the left one, both
    id_of = ids.get
    for index, token in enumerate(tokens):
        if len(token) > _MAX_LENGTH:
            raise ModelLoadError(
                f"its token {index}, {token[:16]!r}..., has {len(token)} characters, more than "
                f"{_MAX_LENGTH}"
            )
        for at in range(len(token) - 1, 0, -1):
            left = id_of(token[:at])
            if left is not None and (right := id_of(token[at:])) is not None:
                found.extend((index, at, left, right))
        if len(found) > 4 * most:
            raise ModelLoadError(f"its vocabulary has more than {most} pairs that are a token")
    owners, lengths, left_ids, right_ids = np.array(found, np.int32).reshape(-1, 4).T
    order = np.lexsort((-lengths, np.asarray(ranks)[owners]))
    return Pairs(tokens, left_ids[order], right_ids[order])
