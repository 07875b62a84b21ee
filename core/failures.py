"""FailureHandler: what remains usable after a failure, and when the engine gives up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from core.kv.manager import KVCacheManager
from core.pipeline import Runner
from core.sequence import Sequence

MAX_FAILED_STEPS = 8
"""Failed steps in a row after which the engine gives up."""


class FailureHandler:
    """Counts failed steps and keeps their blocks out of other sequences. Core thread only."""

    def __init__(self, runner: Runner, kv: KVCacheManager) -> None:
        self._runner = runner
        self._kv = kv
        self._num_failures_in_a_row = 0
        self.num_failed_steps = 0

    def step_succeeded(self) -> None:
        self._num_failures_in_a_row = 0

    def step_failed(self, error: Exception) -> None:
        """Drop the prefix cache. Raises ``error`` if the engine cannot continue."""
        self.num_failed_steps += 1
        self._num_failures_in_a_row += 1
        if _is_fatal(error) or self._num_failures_in_a_row >= MAX_FAILED_STEPS:
            raise error
        self._kv.invalidate()
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()

    @contextmanager
    def clearing_blocks_of(self, sequence: Sequence) -> Iterator[None]:
        """Free the sequence within: its blocks may contain NaN, so they are cleared."""
        block_ids = self._kv.drop_cached(sequence)
        yield
        self._runner.clear(self._kv.free_among(block_ids))

    def stale_row_failed(self) -> None:
        """Clear all free blocks: those of the row may contain NaN, and are no longer known."""
        self._kv.invalidate()
        self._runner.clear(self._kv.free_among(range(self._kv.num_blocks)))


def _is_fatal(error: Exception) -> bool:
    """Whether the device is lost: after a CUDA error every later call fails too."""
    return isinstance(error, torch.AcceleratorError) and not isinstance(
        error, torch.OutOfMemoryError
    )
