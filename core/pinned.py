"""Pinned host memory: numbers go to the device and come back without anyone waiting for them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

WordArray: TypeAlias = npt.NDArray[np.int32]


class Uploads:
    """A ring of pinned buffers that a step's numbers are copied from. Core thread only.

    A buffer is written again only when the copy out of it has ended, which with a few of them it
    always has, unless the host runs that many steps ahead of the device. For a device that is the
    CPU the memory is plain and the copies are done at once.
    """

    def __init__(self, device: torch.device, num_buffers: int = 4) -> None:
        self._is_cuda = device.type == "cuda"
        self._buffers = [torch.empty(0, dtype=torch.int32) for _ in range(num_buffers)]
        self._copied = [_event() if self._is_cuda else None for _ in range(num_buffers)]
        self._next = 0

    def take(self, num_words: int) -> WordArray:
        """A buffer to write into, whose content ``send`` copies; it begins at 16 bytes."""
        event, buffer = self._copied[self._next], self._buffers[self._next]
        if event is not None:
            event.synchronize()
        if len(buffer) < num_words:
            room = max(num_words, 2 * len(buffer))
            buffer = torch.empty(room, dtype=torch.int32, pin_memory=self._is_cuda)
            self._buffers[self._next] = buffer
        array: WordArray = buffer.numpy()
        return array

    def send(self, num_words: int, target: torch.Tensor) -> None:
        """Copy the buffer taken last to ``target``, int32, on the current stream."""
        target[:num_words].copy_(self._buffers[self._next][:num_words], non_blocking=True)
        event = self._copied[self._next]
        if event is not None:
            event.record()
        self._next = (self._next + 1) % len(self._buffers)


class Download:
    """A tensor on its way to the host. The tensor may be overwritten once this is made."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """Begin to copy, behind all that the current stream was told before."""
        self._ended = _event() if tensor.is_cuda else None
        if self._ended is None:
            self._host = tensor.clone()
        else:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._ended.record()

    def tolist(self) -> Any:
        """Wait for the copy, and for nothing that came after it; then its numbers."""
        if self._ended is not None:
            self._ended.synchronize()
        return self._host.tolist()


def upload(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy ``array`` to ``device`` without waiting.

    On the CPU the memory is shared, so the array must not change while the tensor lives.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return event
