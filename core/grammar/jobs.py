"""MaskJob: the mask of one sequence at one position. FilledMasks: masks filled together."""

from __future__ import annotations

import weakref
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.grammar.progress import Progress
from core.state.sequence import Sequence, Status

Addends: TypeAlias = npt.NDArray[np.float32]


class FilledMasks:
    """Masks of some rows, in the form that ``core.grammar.masks.apply`` takes. Immutable.

    When the last job has dropped it, its memory goes back to ``home`` for other masks.
    """

    __slots__ = ("_buffer", "_home", "tensor")

    def __init__(
        self, tensor: torch.Tensor, buffer: Addends | None = None, home: list[Addends] | None = None
    ) -> None:
        self.tensor = tensor
        self._buffer = buffer
        self._home = home

    def __del__(self) -> None:
        if self._home is not None and self._buffer is not None:
            self._home.append(self._buffer)


class MaskJob:
    """The mask that follows the first ``end`` tokens of a sequence.

    Made by the core thread. A grammar thread sets ``masks``, ``row`` and at last ``is_done``; the
    core thread reads them after that.
    """

    __slots__ = ("_sequence", "end", "is_done", "masks", "progress", "row", "token_ids")

    def __init__(self, sequence: Sequence, progress: Progress, start: int) -> None:
        """``start`` is the ``end`` of the job before this one."""
        self._sequence = weakref.ref(sequence)
        self.progress = progress
        self.token_ids = sequence.token_ids[start:]
        self.end = len(sequence.token_ids)
        self.masks: FilledMasks | None = None
        self.row = 0
        self.is_done = False

    @property
    def is_wanted(self) -> bool:
        """Whether the sequence still runs."""
        sequence = self._sequence()
        return sequence is not None and sequence.status is not Status.FINISHED
