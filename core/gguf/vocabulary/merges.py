"""The merges of a vocabulary: those in the file, or for SentencePiece those that scores stand for.

SentencePiece joins the two neighbours whose joint token has the best score. A list of merges in
the order of the joint token's rank does the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from core.contract.errors import ModelLoadError
from core.gguf.splits import Splits, joined

_MAX_LENGTH = 256
"""Characters of a token; SentencePiece trains with 16."""

_MAX_PAIRS = 8
"""Pairs per token of the vocabulary, beside ``_MIN_PAIRS``; real ones have about two."""

_MIN_PAIRS = 1 << 16


class Merges(Sequence[tuple[str, str]]):
    """Pairs of tokens, each made when it is read: a list of them takes 100 bytes for each."""

    def __init__(self, make: Callable[..., tuple[str, str]], *columns: Sequence[Any]) -> None:
        """``make`` returns a pair from the values that the columns have for it."""
        self._make = make
        self._columns = columns

    @classmethod
    def written(cls, merges: Sequence[str]) -> Merges:
        """The merges of a file, which have a space between the two tokens of a pair.

        Reading one raises ModelLoadError if it has no space after its first character.
        """
        return cls(_pair, merges)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Merges: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | Merges:
        values = [column[index] for column in self._columns]
        return Merges(self._make, *values) if isinstance(index, slice) else self._make(*values)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return map(self._make, *self._columns)


def _pair(merge: str) -> tuple[str, str]:
    at = merge.find(" ", 1)
    if at < 0:
        raise ModelLoadError(f"the merge {merge!r} has no space")
    return merge[:at], merge[at + 1 :]


def merges_of(
    tokens: Sequence[str], ids: Mapping[str, int], ranks: np.ndarray, units: Sequence[int] = ()
) -> Merges:
    """The pairs of tokens that are together a token, the lowest ``ranks`` first.

    ``ranks`` belong to the joint tokens. Among equal ones the pair with the longer left part is
    first, as in transformers' conversion. Pairs that ``joined`` finds needless are left out;
    ``units`` are the tokens of several characters that a text can begin with. Raises ModelLoadError
    for a token that is too long, and for more pairs than a vocabulary of this size has.
    """
    ranks = np.asarray(ranks)
    splits = joined(_splits(tokens, ids), _sizes(tokens), ranks, units)
    order = np.lexsort((-splits.lengths, ranks[splits.owners]))
    columns = (side[order].data for side in (splits.lefts, splits.rights))  # as Python's numbers
    return Merges(lambda left, right: (tokens[left], tokens[right]), *columns)


def _sizes(tokens: Sequence[str]) -> np.ndarray:
    return np.fromiter(map(len, tokens), np.int16, len(tokens))


def _splits(tokens: Sequence[str], ids: Mapping[str, int]) -> Splits:
    """All pairs of tokens that are together a token."""
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
    return Splits(*np.array(found, np.int32).reshape(-1, 4).T)
