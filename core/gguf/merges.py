"""Merges of a SentencePiece vocabulary, which has scores instead.

SentencePiece joins the two neighbours whose joint token has the best score. A list of merges in
the order of the joint token's rank does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def merges_of(
    tokens: Sequence[str], ids: Mapping[str, int], ranks: np.ndarray
) -> list[tuple[str, str]]:
    """All pairs of tokens that are together a token, the lowest ``ranks`` first.

    ``ranks`` belong to the joint tokens. Among equal ones the pair with the longer left part is
    first, as in transformers' conversion.
    """
    pairs: list[tuple[str, str]] = []
    owners: list[int] = []
    for index, token in enumerate(tokens):
        found = [
            (left, right)
            for at in range(len(token) - 1, 0, -1)
            if (left := token[:at]) in ids and (right := token[at:]) in ids
        ]
        pairs += found
        owners += [index] * len(found)
    lengths = np.fromiter((len(left) for left, _ in pairs), np.int64, len(pairs))
    order = np.lexsort((-lengths, np.asarray(ranks)[np.array(owners, np.intp)]))
    return [pairs[i] for i in order.tolist()]
