"""Masks: token masks filled by llguidance, and their application to logits."""

from __future__ import annotations

import os
from typing import TypeAlias

import llguidance
import llguidance.numpy
import numpy as np
import numpy.typing as npt
import torch

from core.contract.errors import is_survivable
from core.grammar.progress import Progress
from core.pinned import upload

_BITS = 32
_MAX_THREADS = 8

_ADDENDS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(0),
    np.float32(-np.inf),
)  # [256, 8]: of eight tokens, by the byte that holds their bits

Words = npt.NDArray[np.int32]

_RowMatcher: TypeAlias = tuple[llguidance.LLMatcher, int]
"""A matcher and the row that its mask fills."""


class Masks:
    """Fills the masks of a batch. Owned by the grammar thread."""

    def __init__(self, vocab_size: int, end_ids: tuple[int, ...]) -> None:
        self._addends = np.empty((0, 0, 0), dtype=np.float32)
        self._num_words = -(-vocab_size // _BITS)
        self._ends = np.zeros(self._num_words, dtype=np.int32)
        for token_id in end_ids:
            self._ends.view(np.uint32)[token_id // _BITS] |= np.uint32(1 << token_id % _BITS)
        self._executor: llguidance.LLExecutor | None = None

    def fill(self, work: list[tuple[Progress, list[int]]], device: torch.device) -> torch.Tensor:
        """Return the mask after the new tokens of each sequence; no token if its grammar failed.

        For the CPU: numbers to add to logits, float32 [num_rows, num_words * 32], 0 or -inf, valid
        until the next call. For other devices: packed bits, int32 [num_rows, num_words], with bit
        ``i % 32`` of word ``i // 32`` set for an allowed token ``i``.
        """
        words = self._words(work)
        if device.type != "cpu":
            packed = torch.from_numpy(words)
            return packed.pin_memory() if device.type == "cuda" else packed
        num_rows = len(words)
        if len(self._addends) < num_rows:
            self._addends = np.empty((num_rows, self._num_words * 4, 8), dtype=np.float32)
        addends = self._addends[:num_rows]
        np.take(_ADDENDS, words.view(np.uint8), axis=0, out=addends, mode="clip")
        return torch.from_numpy(addends.reshape(num_rows, -1))

    def _words(self, work: list[tuple[Progress, list[int]]]) -> Words:
        """Return the packed masks."""
        words: Words = np.full((len(work), self._num_words), -1, dtype=np.int32)
        matchers = []
        for row, (progress, new) in enumerate(work):
            with progress.failing_alone():
                matcher = progress.advance(new)
                if matcher is not None:
                    matchers.append((matcher, row))
        if not self._fill_together(matchers, words):
            for matcher, row in matchers:
                with work[row][0].failing_alone():
                    llguidance.numpy.fill_next_token_bitmask(matcher, words, row)
        may_end = np.any(words & self._ends, axis=1).tolist()
        for matcher, row in matchers:
            # A matcher that fails, or has reached a dead end, allows the end tokens.
            with work[row][0].failing_alone():
                if may_end[row] and (matcher.is_error() or not matcher.is_accepting()):
                    work[row][0].fail(matcher.get_error() or "nothing can follow")
        for row, (progress, _) in enumerate(work):
            if progress.failure is not None:
                words[row] = 0
        return words

    def _fill_together(self, matchers: list[_RowMatcher], words: Words) -> bool:
        """Fill several rows in parallel. False: not done, each must be filled alone."""
        if len(matchers) < 2:
            return False
        if self._executor is None:
            self._executor = llguidance.LLExecutor(min(os.cpu_count() or 1, _MAX_THREADS))
        try:
            llguidance.numpy.fill_next_token_bitmask_par(self._executor, matchers, words)
        except BaseException as error:  # it does not say of which row
            if not is_survivable(error):
                raise
            return False
        return True


def apply(logits: torch.Tensor, rows: list[int], masks: torch.Tensor) -> None:
    """Set masked logits to -inf. ``masks`` is from ``Masks.fill``; row ``i`` is for ``rows[i]``.

    The CPU gets numbers to add because its ``masked_fill`` is slower.
    """
    if masks.dtype == torch.int32:
        masks = _unpacked(masks, logits)
    masks = masks[:, : logits.shape[1]]
    if len(rows) == logits.shape[0]:
        logits.add_(masks)
    else:
        index = upload(np.array(rows, dtype=np.float64), logits.device).long()
        logits.index_add_(0, index, masks)


def _unpacked(words: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Unpack bits to numbers to add, 0 or -inf, on the device of the logits."""
    words = words.to(logits.device, non_blocking=True)
    shifts = torch.arange(_BITS, dtype=torch.int32, device=logits.device)
    bits = words[:, :, None].bitwise_right_shift(shifts).bitwise_and_(1).flatten(1)
    return bits.to(torch.float32).log_()  # log 1 is 0, log 0 is -inf
