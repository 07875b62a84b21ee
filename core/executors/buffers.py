"""Memory of a step that the compiled kernels read and write. Core thread only."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.kernels.cpu.structures import Angles, LayerStep
from core.system.huge_pages import zeros

LEAST_ROWS = 8
"""Rows of logits that a buffer has room for, at least."""

LINE_BYTES = 64
"""Bytes of a cache line."""

LINE = LINE_BYTES // 4
"""float32 values of a cache line."""

BUFFERS = ("normed", "projected", "query", "key", "hidden", "inner", "attended", "expanded")
"""Fields of LayerStep that point to rows of intermediate results."""

Widths: TypeAlias = dict[str, int]
"""The columns of each of BUFFERS that there is."""


class Workspace:
    """Memory for the intermediate results of a layer, which all layers share.

    Layers with buffers of the same widths, and the same angles, have one LayerStep.
    """

    def __init__(self) -> None:
        self._storage = torch.empty(0)
        self._steps: dict[tuple[object, tuple[int, ...]], LayerStep] = {}
        self._num_tokens = 0

    def step(self, angles: object, widths: Widths) -> LayerStep:
        """The step of layers of a kind; valid while this object lives.

        ``angles`` is the kind of their angles, None if they have none.
        """
        columns = tuple(widths.get(name, 0) for name in BUFFERS)
        return self._steps.setdefault((angles, columns), LayerStep())

    def fit(self, num_tokens: int) -> None:
        """Point every step to memory for so many tokens."""
        if num_tokens == self._num_tokens:
            return
        self._num_tokens = num_tokens
        size = num_tokens * max(sum(widths) for _, widths in self._steps)
        if size > self._storage.numel():
            self._storage = zeros(4 * size).view(torch.float32)
        for (_, widths), step in self._steps.items():
            starts = accumulate(
                (4 * num_tokens * width for width in widths), initial=self._storage.data_ptr()
            )
            for name, start, width in zip(BUFFERS, starts, widths, strict=False):
                setattr(step, name, start if width else None)
            step.num_tokens = num_tokens

    def point(
        self, x: int, positions: int, angles: Mapping[object, Angles], inputs: tuple[int, int]
    ) -> None:
        """Set the addresses of the residual stream, of positions, and of each kind's angles.

        ``inputs`` are the address and the columns of the inputs of layers.
        """
        for (kind, _), step in self._steps.items():
            step.x = step.y = x
            step.positions = positions
            step.inputs, step.input_columns = inputs
            if kind is not None:
                own = angles[kind]
                step.cos, step.sin, step.rotated = own.cos, own.sin, own.rotated


class LogitsRoom(NamedTuple):
    """Memory for logits: float32 ``[num_rows, vocab_size]``, its address and stride in values."""

    logits: torch.Tensor
    address: int
    stride: int


class LogitsBuffer:
    """Logits are written into the same buffer, of huge pages, in every step.

    They are the largest tensor of a step: allocating them costs more than sampling, and their rows
    are so far apart that each is in a page of its own. Every row starts at a cache line, so that no
    store touches two and large results can be written past the caches.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._stride = -(-vocab_size // LINE) * LINE
        self._buffer = torch.empty(0)
        self._room = LogitsRoom(torch.empty(0, vocab_size), 0, self._stride)

    def of(self, num_rows: int) -> LogitsRoom:
        """Room for so many rows; the next call may return the same memory."""
        if len(self._room.logits) != num_rows:
            size = num_rows * self._stride
            if self._buffer.numel() < size:
                # what is not written takes no memory, but every buffer before this one may have
                most = max(LEAST_ROWS, 1 << (num_rows - 1).bit_length())
                self._buffer = zeros(4 * most * self._stride).view(torch.float32)
            rows = self._buffer[:size].view(num_rows, self._stride)[:, : self._vocab_size]
            self._room = LogitsRoom(rows, rows.data_ptr(), self._stride)
        return self._room


class Memory:
    """A buffer that the kernel writes to; a larger one replaces it. Core thread only."""

    def __init__(self) -> None:
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._address = 0

    def of(self, num_bytes: int) -> int:
        """The address of so many bytes, aligned to a cache line. Their content is undefined."""
        if len(self._buffer) < num_bytes + LINE_BYTES:
            self._buffer = np.empty(num_bytes + LINE_BYTES, dtype=np.uint8)
            self._address = -(-self._buffer.ctypes.data // LINE_BYTES) * LINE_BYTES
        return self._address
