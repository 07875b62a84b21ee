"""Copies between host and device through pinned memory, without waiting."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

WordArray: TypeAlias = npt.NDArray[np.int32]


class Uploads:
    """A ring of pinned buffers from which steps are copied to the device. Core thread only.

    A buffer is reused once the copy out of it has ended. With a few buffers the host waits for
    that only if it runs that many steps ahead of the device. On a CPU the memory is not pinned and
    copies are synchronous.
    """

    def __init__(self, device: torch.device, num_buffers: int = 4) -> None:
        self._is_cuda = device.type == "cuda"
        self._buffers = [torch.empty(0, dtype=torch.int32) for _ in range(num_buffers)]
        self._copied = [_event() if self._is_cuda else None for _ in range(num_buffers)]
        self._next = 0

    def take(self, num_words: int) -> WordArray:
        """Return a buffer to fill, aligned to 16 bytes; ``send`` copies its content."""
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
        """Copy the last taken buffer to ``target``, int32, on the current stream."""
        target[:num_words].copy_(self._buffers[self._next][:num_words], non_blocking=True)
        event = self._copied[self._next]
        if event is not None:
            event.record()
        self._next = (self._next + 1) % len(self._buffers)


class Download:
    """A copy of a tensor to the host, in flight. The tensor may be overwritten meanwhile."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """Start the copy after the work that is queued on the current stream."""
        self._ended = _event() if tensor.is_cuda else None
        if self._ended is None:
            self._host = tensor.clone()
        else:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._ended.record()

    def tolist(self) -> Any:
        """Wait for the copy, but for no later work; return its values."""
        return self._landed().tolist()

    def numpy(self) -> npt.NDArray[Any]:
        """Wait as ``tolist`` does; return an array, which belongs to the caller."""
        array: npt.NDArray[Any] = self._landed().numpy()
        return array

    def _landed(self) -> torch.Tensor:
        if self._ended is not None:
            self._ended.synchronize()
        return self._host


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
