"""Memory for results of the kernels that no tensor is needed for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LINE = 64
"""Bytes of a cache line."""


class Memory:
    """A buffer that the kernel writes to; a larger one replaces it. Core thread only."""

    def __init__(self) -> None:
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._address = 0

    def of(self, num_bytes: int) -> int:
        """The address of so many bytes, aligned to a cache line. Their content is undefined."""
        if len(self._buffer) < num_bytes + LINE:
            self._buffer = np.empty(num_bytes + LINE, dtype=np.uint8)
            self._address = -(-self._buffer.ctypes.data // LINE) * LINE
        return self._address
