"""Tensors over device memory that they do not keep alive."""

from __future__ import annotations

from typing import Any

import torch


def unowned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the memory of ``tensor``, which it does not keep alive.

    The memory of a captured graph belongs to the graph. A tensor that keeps a part of it alive
    would prevent that the rest of the capture, and other graphs, use that part again. On a CPU
    this returns ``tensor``.
    """
    if not tensor.is_cuda:
        return tensor
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    memory = _Memory(tensor.data_ptr(), (last + 1) * tensor.itemsize)
    flat = torch.as_tensor(memory, device=tensor.device)
    return flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


class _Memory:
    """Bytes on a device, in the form that torch reads."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }
