"""The merges of a vocabulary: the file's own, or for SentencePiece the ones that scores imply.

SentencePiece joins the two neighbours whose joint token has the best score. A list of merges in
the order of the joint token's rank does the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from core.contract.errors import ModelLoadError

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


@dataclass(frozen=True, slots=True)
class Splits:
    """Splits as columns, all of a token next to one another. Tokens are ids."""

    owners: np.ndarray
    """The tokens that are split."""

    lengths: np.ndarray
    """Characters of the left halves."""

    lefts: np.ndarray
    rights: np.ndarray

    def __len__(self) -> int:
        return len(self.owners)

    def __getitem__(self, index: np.ndarray) -> Splits:
        columns = (self.owners, self.lengths, self.lefts, self.rights)
        return Splits(*(column[index] for column in columns))


def joined(splits: Splits, sizes: np.ndarray, ranks: np.ndarray, units: Sequence[int]) -> Splits:
    """Return the splits without nearly all that are never joined.

    ``splits`` are all there are. ``sizes`` and ``ranks`` belong to the tokens: characters, and the
    order in which BPE joins. ``units`` are the tokens of several characters that a text can begin
    with, such as those of bytes.

    Where A and B are joined, nothing was joined across their ends before. So what was joined within
    each is what BPE joins in its characters alone, and of the next ones in both the lower rank came
    first. The half whose highest rank, its peak, is above the other's was thus completed last, by
    joining its own halves when the other half was there. Let that be A, of A1 and A2: the text was
    A1 A2 B. If A2 and B are a token too, of a rank below A's, then BPE joined those: A and B never
    are. For B it is the same with A B1 B2.

    This needs the last join of A. It is known where one split of A is left: sizes are looked at in
    ascending order. Other tokens, and what can have been made of units, have the peak NaN, with
    which nothing compares.
    """
    peaks = np.where(sizes == 1, -np.inf, np.nan)
    cuts = np.zeros(len(sizes), np.intp)  # characters of the left half in a token's last join
    is_unit = np.zeros(len(sizes), bool)
    is_unit[list(units)] = True
    is_kept = np.ones(len(splits), bool)
    split_sizes = sizes[splits.owners]
    groups = np.split(np.argsort(split_sizes, kind="stable"), np.bincount(split_sizes).cumsum())
    for size, group in enumerate(groups):
        if not len(group):
            continue
        these = splits[group]
        left_peaks, right_peaks = peaks[these.lefts], peaks[these.rights]
        is_left_last = left_peaks > right_peaks
        last = np.where(is_left_last, these.lefts, these.rights)
        places = cuts[last] + np.where(is_left_last, 0, these.lengths)  # of the cut in the token
        places[~(is_left_last | (right_peaks > left_peaks))] = 0  # there is no split at 0

        tokens = np.diff(these.owners, prepend=these.owners[0]).astype(bool).cumsum()
        split_at = np.full((tokens[-1] + 1, size), -1)
        split_at[tokens, these.lengths] = np.arange(len(group))
        rivals = split_at[tokens, places]
        across = np.where(is_left_last, these.rights[rivals], these.lefts[rivals])
        is_joined = ~((rivals >= 0) & (ranks[across] < ranks[last]))
        is_kept[group] = is_joined

        is_only = is_joined & (np.bincount(tokens, is_joined)[tokens] == 1)
        is_only &= ~is_unit[these.owners]
        known = these[is_only]
        highest = np.maximum(left_peaks, right_peaks)[is_only]
        peaks[known.owners] = np.maximum(highest, ranks[known.owners])
        cuts[known.owners] = known.lengths
    return splits[is_kept]
