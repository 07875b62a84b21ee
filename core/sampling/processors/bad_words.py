"""BadWords: masks tokens that would complete a banned word."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import Float64Array, entries, exclude
from core.sampling.processors.per_request import PerRequest
from core.state.sequence import Sequence


class BadWords:
    """``bad_words_ids``: a word's last token is masked while the output ends with its others.

    The words are sorted by what comes before their last token once per request. A step looks up
    the output's end once per length of a word, however many words there are.
    """

    reads_tokens = True

    def __init__(self) -> None:
        self._words: PerRequest[_Words] = PerRequest(_Words)

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.bad_words_ids)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        words = self._words.of(sequence.params.bad_words_ids for sequence in sequences)
        banned = [own.completions(s) for own, s in zip(words, sequences, strict=True)]
        if any(len(ids) for ids in banned):
            index, ids, _ = entries(logits, rows, banned)
            exclude(logits, index, ids)


class _Words:
    """The last tokens of words, by length and tokens of what comes before them."""

    def __init__(self, words: tuple[tuple[int, ...], ...]) -> None:
        lists: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for word in words:
            if word:
                before = word[:-1]
                lists.setdefault(len(before), {}).setdefault(before, []).append(word[-1])
        self._lasts: dict[int, dict[tuple[int, ...], Float64Array]] = {
            length: {before: np.array(ids, dtype=np.float64) for before, ids in by_tokens.items()}
            for length, by_tokens in lists.items()
        }

    def completions(self, sequence: Sequence) -> Float64Array:
        """Return the tokens that would complete a word at the end of the output."""
        token_ids = sequence.token_ids
        found = [
            ids
            for length, by_tokens in self._lasts.items()
            if length <= sequence.num_output_tokens
            and (ids := by_tokens.get(tuple(token_ids[len(token_ids) - length :]))) is not None
        ]
        return np.concatenate(found) if found else np.empty(0)
