"""Merges of a SentencePiece vocabulary, which has scores instead.

SentencePiece joins the two neighbours whose joint token has the best score. A list of merges in
the order of the joint token's rank does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from core.contract.errors import ModelLoadError

_MAX_LENGTH = 256
"""Characters of a token; SentencePiece trains with 16."""

_MAX_PAIRS = 8
"""Pairs per token of the vocabulary, beside ``_MIN_PAIRS``; real ones have about two."""

_MIN_PAIRS = 1 << 16


def merges_of(
    tokens: Sequence[str], ids: Mapping[str, int], ranks: np.ndarray
) -> list[tuple[str, str]]:
    """All pairs of tokens that are together a token, the lowest ``ranks`` first.

    ``ranks`` belong to the joint tokens. Among equal ones the pair with the longer left part is
    first, as in transformers' conversion. Raises ModelLoadError for a token that is too long, and
    for more pairs than a vocabulary of this size has.
    """
    most = _MAX_PAIRS * len(tokens) + _MIN_PAIRS
    pairs: list[tuple[str, str]] = []
    owners: list[int] = []
    for index, token in enumerate(tokens):
        if len(token) > _MAX_LENGTH:
            raise ModelLoadError(
                f"its token {index}, {token[:16]!r}..., has {len(token)} characters, more than "
                f"{_MAX_LENGTH}"
            )
        found = [
            (tokens[ids[left]], tokens[ids[right]])  # slices would be strings of their own
            for at in range(len(token) - 1, 0, -1)
            if (left := token[:at]) in ids and (right := token[at:]) in ids
        ]
        pairs += found
        owners += [index] * len(found)
        if len(pairs) > most:
            raise ModelLoadError(f"its vocabulary has more than {most} pairs that are a token")
    lengths = np.fromiter((len(left) for left, _ in pairs), np.int64, len(pairs))
    order = np.lexsort((-lengths, np.asarray(ranks)[np.array(owners, np.intp)]))
    return [pairs[i] for i in order.tolist()]
