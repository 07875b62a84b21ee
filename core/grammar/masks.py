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
from core.grammar.jobs import Addends, FilledMasks
from core.grammar.progress import NotCompiled, Progress
from core.pinned import upload

_BITS = 32
_MAX_THREADS = 8
_MAX_SPARE = 2

_ADDENDS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(0),
    np.float32(-np.inf),
)  # [256, 8]: of eight tokens, by the byte that holds their bits

Words = npt.NDArray[np.int32]

RowMatcher: TypeAlias = tuple[Progress, llguidance.LLMatcher | None]
"""A sequence and its matcher; None if it needs no mask, because it is over or has failed."""


class Masks:
    """Fills the masks of some rows. Owned by one grammar thread."""

    def __init__(self, vocab_size: int, end_ids: tuple[int, ...], device: torch.device) -> None:
        """``device`` is that of the logits."""
        self._device = device
        self._num_words = -(-vocab_size // _BITS)
        self._ends = np.zeros(self._num_words, dtype=np.int32)
        for token_id in end_ids:
            self._ends.view(np.uint32)[token_id // _BITS] |= np.uint32(1 << token_id % _BITS)
        self._executor: llguidance.LLExecutor | None = None
        self._spare: list[Addends] = []

    def fill(self, rows: list[RowMatcher]) -> tuple[Words, list[int]]:
        """Return packed masks, int32 [num_rows, num_words], and the rows to compile again.

        Bit ``i % 32`` of word ``i // 32`` is set for an allowed token ``i``. No token is allowed if
        the grammar failed.
        """
        words: Words = np.full((len(rows), self._num_words), -1, dtype=np.int32)
        again = []
        matchers = [(m, row) for row, (_, m) in enumerate(rows) if m is not None]
        done = self._fill_together(matchers, words)
        for matcher, row in matchers:
            progress = rows[row][0]
            try:
                with progress.failing_alone():
                    if not done:
                        llguidance.numpy.fill_next_token_bitmask(matcher, words, row)
                    self._check(progress, matcher, words[row])
            except NotCompiled:
                again.append(row)
        for row, (progress, _) in enumerate(rows):
            if progress.failure is not None:
                words[row] = 0
        return words, again

    def packed(self, words: Words) -> FilledMasks:
        """Put masks in the form for the device.

        For the CPU numbers to add to logits, float32 [num_rows, num_words * 32], 0 or -inf; for
        others the packed bits.
        """
        if self._device.type == "cpu":
            buffer = self._buffer(len(words))
            addends = buffer[: len(words)]
            np.take(_ADDENDS, words.view(np.uint8), axis=0, out=addends, mode="clip")
            tensor = torch.from_numpy(addends.reshape(len(words), -1))
            return FilledMasks(tensor, buffer, self._spare)
        tensor = torch.from_numpy(words)
        return FilledMasks(tensor.pin_memory() if self._device.type == "cuda" else tensor)

    def _buffer(self, num_rows: int) -> Addends:
        """Return a buffer of at least so many rows, a used one if possible: new pages are slow."""
        while self._spare:
            buffer = self._spare.pop()
            if len(buffer) >= num_rows:
                del self._spare[_MAX_SPARE:]
                return buffer
        return np.empty((num_rows, self._num_words * 4, 8), dtype=np.float32)

    def _check(self, progress: Progress, matcher: llguidance.LLMatcher, words: Words) -> None:
        """Note a failure: a matcher that fails, or is at a dead end, allows the end tokens."""
        if not np.any(words & self._ends):
            return
        if matcher.is_error():
            progress.give_up(matcher.get_error())
        elif not matcher.is_accepting():
            progress.fail("nothing can follow")

    def _fill_together(
        self, matchers: list[tuple[llguidance.LLMatcher, int]], words: Words
    ) -> bool:
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
    """Set masked logits to -inf. ``masks`` is of ``Masks.packed``; row ``i`` is for ``rows[i]``.

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


def exclude_all(logits: torch.Tensor, rows: list[int]) -> None:
    """Set all logits of these rows to -inf."""
    index = upload(np.array(rows, dtype=np.float64), logits.device).long()
    logits.index_fill_(0, index, -torch.inf)


def _unpacked(words: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Unpack bits to numbers to add, 0 or -inf, on the device of the logits."""
    words = words.to(logits.device, non_blocking=True)
    shifts = torch.arange(_BITS, dtype=torch.int32, device=logits.device)
    bits = words[:, :, None].bitwise_right_shift(shifts).bitwise_and_(1).flatten(1)
    return bits.to(torch.float32).log_()  # log 1 is 0, log 0 is -inf
