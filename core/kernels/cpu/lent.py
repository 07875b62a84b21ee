"""LentCore: a core that a team of compute threads leaves to another thread for a moment."""

from __future__ import annotations

import ctypes

from core.kernels.cpu.bindings import Kernels


class LentCore:
    """A ``Lender`` (core/system/hand_over.py).

    The last thread of a team waits for its core; ``source/threads/team.h`` says how.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._word = ctypes.c_int32()
        self._return_core = kernels.return_core
        self.address = ctypes.addressof(self._word)
        """Of the word that ``Kernels.layers`` takes. It is valid as long as this object."""

    def lend(self) -> None:
        """Core thread only."""
        self._word.value = 1

    def give_back(self) -> None:
        """Any thread."""
        self._return_core(self.address)
