"""StageTimes: how long the threads take for each kind of stage of a step in one call."""

from __future__ import annotations

import torch

from core.kernels.cpu.bindings import Kernels


class StageTimes:
    """Sums over the calls of ``Kernels.layers`` that get ``address``. Core thread only.

    ``sums`` is int64 ``[1 + num_threads, len(names), 2]``. Part 0 has multiplications, and bytes of
    weights or of keys and values; 0 is what is not known. The others have the nanoseconds of a
    thread: computing, and waiting for the other threads. All numbers of a thread add up to the time
    of the calls. Mirrors ``StageTimes`` in source/threads/laps.h.
    """

    def __init__(self, kernels: Kernels) -> None:
        """Measure teams of this thread."""
        self.names = kernels.stage_names
        self.sums = torch.zeros(
            1 + torch.get_num_threads(), len(self.names), 2, dtype=torch.int64, device="cpu"
        )
        self.address = self.sums.data_ptr()
