"""Masks: token masks filled by llguidance, and their application to logits."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TypeAlias

import llguidance
import llguidance.numpy
import numpy as np
import torch

from core.contract.errors import is_survivable
from core.grammar.jobs import Addends, FilledMasks
from core.grammar.matcher.digits import Words
from core.grammar.progress import NotCompiled, Progress
from core.observe.histogram import SECONDS, Histogram
from core.system.pinned import upload

_BITS = 32
_MAX_SPARE = 2

_ADDENDS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(0),
    np.float32(-np.inf),
)  # [256, 8]: of eight tokens, by the byte that holds their bits

Step: TypeAlias = tuple[llguidance.LLMatcher, int]
"""A matcher and a token that it consumes."""


class Masks:
    """Advances matchers and fills their masks. Owned by one grammar thread.

    Matchers are advanced on the executor's threads: an LLMatcher keeps the interpreter lock for as
    long as a token takes, an LLExecutor releases it if it has two matchers or more.
    """

    def __init__(
        self,
        vocab_size: int,
        end_ids: tuple[int, ...],
        device: torch.device,
        *,
        new_idle: Callable[[], llguidance.LLMatcher],
        num_threads: int = 1,
        times: Histogram | None = None,
    ) -> None:
        """``device`` is that of the logits.

        ``new_idle`` makes a matcher that consumes nothing. ``num_threads`` may be more than CPUs.
        ``times`` are the seconds in which masks were filled; the grammar thread counts them.
        """
        self.times = times or Histogram(SECONDS)
        self._new_idle = new_idle
        self._device = device
        self._num_threads = min(os.cpu_count() or 1, num_threads)
        self._num_words = -(-vocab_size // _BITS)
        self._ends = np.zeros(self._num_words, dtype=np.int32)
        for token_id in end_ids:
            self._ends.view(np.uint32)[token_id // _BITS] |= np.uint32(1 << token_id % _BITS)
        self._spare: list[Addends] = []
        self._idle: llguidance.LLMatcher | None = None

    @functools.cached_property
    def _executor(self) -> llguidance.LLExecutor:
        """Its threads inherit the priority of the thread that makes it."""
        return llguidance.LLExecutor(self._num_threads)

    def consume(self, rows: list[tuple[Progress, list[int]]]) -> list[int]:
        """Consume the tokens of each row; returns the rows that need a lexer of their own."""
        together = [row for row, (_, tokens) in enumerate(rows) if len(tokens) == 1]
        accepted: dict[int, bool] = {}
        panic = ""
        try:
            steps = [_step(rows[row][0], rows[row][1][0]) for row in together]
            accepted = dict(zip(together, self._accepted(steps), strict=True))
        except BaseException as error:
            if not is_survivable(error):
                raise
            if not isinstance(error, Exception):  # a panic: any of them may have moved on
                accepted = dict.fromkeys(together, False)
                panic = "panic"
        again = []
        for row, (progress, tokens) in enumerate(rows):
            try:
                with progress.failing_alone():
                    if row not in accepted:
                        accepted[row] = all(
                            self._accepted([_step(progress, token_id)]) == [True]
                            for token_id in tokens
                        )
                    if not accepted[row]:
                        assert progress.matcher is not None
                        progress.give_up(progress.matcher.get_error() or panic)
            except NotCompiled:
                again.append(row)
        return again

    def _accepted(self, steps: list[Step]) -> list[bool]:
        """Consume one token each; returns which were accepted.

        An idle matcher makes them two at least.
        """
        if not steps:
            return []
        if self._idle is None:
            self._idle = self._new_idle()
        return self._executor.consume_token_par([*steps, (self._idle, 0)])[:-1]

    def fill(self, rows: list[Progress]) -> tuple[Words, list[int]]:
        """Return packed masks, int32 [num_rows, num_words], and the rows that need a lexer.

        Bit ``i % 32`` of word ``i // 32`` is set for an allowed token ``i``. No token is allowed if
        the grammar failed.
        """
        words: Words = np.full((len(rows), self._num_words), -1, dtype=np.int32)
        again = []
        matchers = [(m, row) for row, p in enumerate(rows) if (m := p.live_matcher) is not None]
        is_filled = self._fill_together(matchers, words)
        for matcher, row in matchers:
            try:
                with rows[row].failing_alone():
                    if not is_filled:
                        llguidance.numpy.fill_next_token_bitmask(matcher, words, row)
                    self._check(rows[row], matcher, words[row])
                    rows[row].end_numbers(words[row])
            except NotCompiled:
                again.append(row)
        for row, progress in enumerate(rows):
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
        try:
            llguidance.numpy.fill_next_token_bitmask_par(self._executor, matchers, words)
        except BaseException as error:  # it does not say of which row
            if not is_survivable(error):
                raise
            return False
        return True


def _step(progress: Progress, token_id: int) -> Step:
    assert progress.matcher is not None
    return progress.matcher, token_id


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
        logits.index_add_(0, _uploaded(rows, logits), masks)


def exclude_all(logits: torch.Tensor, rows: list[int]) -> None:
    """Set all logits of these rows to -inf."""
    logits.index_fill_(0, _uploaded(rows, logits), -torch.inf)


def _uploaded(rows: list[int], logits: torch.Tensor) -> torch.Tensor:
    return upload(np.array(rows, dtype=np.float64), logits.device).long()


def _unpacked(words: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Unpack bits to numbers to add, 0 or -inf, on the device of the logits."""
    words = words.to(logits.device, non_blocking=True)
    shifts = torch.arange(_BITS, dtype=torch.int32, device=logits.device)
    bits = words[:, :, None].bitwise_right_shift(shifts).bitwise_and_(1).flatten(1)
    return bits.to(torch.float32).log_()  # log 1 is 0, log 0 is -inf
