"""The splits of a vocabulary's tokens, without those that BPE never joins.

A split is a pair of tokens that are together a token. A vocabulary of SentencePiece has about two
for each token, all of which are merges by the token's rank. But BPE makes a token from its
characters always in the same way, and a merge that is never applied can be left out: it takes
memory in a table that stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
