"""BadWords: masks tokens that would complete a banned word."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import entries, exclude
from core.sequence import Sequence


class BadWords:
    """``bad_words_ids``: a word's last token is masked while the output ends with its others."""

    reads_tokens = True

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.bad_words_ids)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        banned = [np.array(_completions(sequence), dtype=np.float64) for sequence in sequences]
        if any(len(ids) for ids in banned):
            index, ids, _ = entries(logits, rows, banned)
            exclude(logits, index, ids)


def _completions(sequence: Sequence) -> list[int]:
    num_output_tokens = sequence.num_output_tokens
    completions = []
    for word in sequence.params.bad_words_ids:
        length = len(word) - 1
        if 0 <= length <= num_output_tokens:
            tail = sequence.token_ids[len(sequence.token_ids) - length :]
            if tail == list(word[:-1]):
                completions.append(word[-1])
    return completions
