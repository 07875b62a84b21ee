"""PinnedWords: host memory that a step's numbers are copied from without waiting."""

from __future__ import annotations

import torch

from core.attention.triton.plan import WordArray


class PinnedWords:
    """A ring of pinned int32 buffers. Core thread only.

    A buffer is written again only when the copy out of it has ended, which with a few of them it
    always has, unless the host runs that many steps ahead of the device.
    """

    def __init__(self, device: torch.device, num_buffers: int = 4) -> None:
        self._is_cuda = device.type == "cuda"
        self._buffers = [torch.empty(0, dtype=torch.int32) for _ in range(num_buffers)]
        self._copied: list[torch.cuda.Event | None] = [
            torch.cuda.Event() if self._is_cuda else None  # type: ignore[no-untyped-call]
            for _ in range(num_buffers)
        ]
        self._next = 0

    def take(self, num_words: int) -> WordArray:
        """A buffer to write into, whose content ``send`` copies."""
        event = self._copied[self._next]
        if event is not None:
            event.synchronize()
        if len(self._buffers[self._next]) < num_words:
            room = max(num_words, 2 * len(self._buffers[self._next]))
            self._buffers[self._next] = torch.empty(
                room, dtype=torch.int32, pin_memory=self._is_cuda
            )
        array: WordArray = self._buffers[self._next].numpy()
        return array

    def send(self, num_words: int, target: torch.Tensor) -> None:
        """Copy the buffer taken last to ``target``, on the current stream."""
        target[:num_words].copy_(self._buffers[self._next][:num_words], non_blocking=True)
        event = self._copied[self._next]
        if event is not None:
            event.record()
        self._next = (self._next + 1) % len(self._buffers)
