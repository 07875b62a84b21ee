"""KVStorage: the tensors of the KV cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from core.kv.layer_spec import LayerSpec
from core.system import huge_pages
from core.system.memory_ahead import HUGE_PAGE

MAX_READ = 1024
"""Blocks that are copied at once to look for NaN."""

MIN_SHIFTED = 8 * HUGE_PAGE
"""Bytes of the smallest tensor whose first huge page may be left empty in part."""

_CACHE_LINE = 64
"""Bytes."""


class KVStorage:
    """Keys and values of every layer, ``[num_blocks, num_kv_heads, block_size, head_dim]`` each.

    The values of one (block, head) are contiguous; their order is the attention backend's. A cache
    of int8 has a float32 scale per token and head, ``[num_blocks, num_kv_heads, block_size]`` for
    keys and for values. Core thread only.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.key_scales: list[torch.Tensor] = []
        self.value_scales: list[torch.Tensor] = []
        for index, layer in enumerate(layers):
            shape = (num_blocks, layer.num_kv_heads, block_size)
            part = index / len(layers)
            self.keys.append(_zeros((*shape, layer.head_dim), dtype, device, part))
            part += 1 / (2 * len(layers))
            self.values.append(_zeros((*shape, layer.value_dim), dtype, device, part))
            if dtype is torch.int8:
                self.key_scales.append(_zeros(shape, torch.float32, device, part))
                self.value_scales.append(_zeros(shape, torch.float32, device, part))

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors. Each has an entry per block."""
        return [*self.keys, *self.values, *self.key_scales, *self.value_scales]

    def clear(self, block_ids: Sequence[int]) -> None:
        """Write zeros over free blocks."""
        if not self.keys or not len(block_ids):
            return
        index = torch.tensor(list(block_ids), dtype=torch.int64, device=self.keys[0].device)
        for tensor in self.tensors:
            tensor.view(torch.uint8).index_fill_(0, index, 0)  # all types: zero bytes are 0

    def not_finite(self, block_ids: Sequence[int]) -> list[int]:
        """Return the blocks among these that contain NaN or infinity. Waits for the device."""
        some = (block_ids[i : i + MAX_READ] for i in range(0, len(block_ids), MAX_READ))
        return [block_id for ids in some for block_id in self._not_finite(ids)]

    def _not_finite(self, block_ids: Sequence[int]) -> list[int]:
        if not self.keys:
            return []
        index = torch.tensor(list(block_ids), dtype=torch.int64, device=self.keys[0].device)
        is_finite = torch.ones(len(index), dtype=torch.bool, device=index.device)
        for tensor in self.tensors:
            blocks = tensor.view(torch.uint8).index_select(0, index).view(tensor.dtype)
            if tensor.dtype.itemsize == 1:  # torch cannot tell for 8 bits
                blocks = blocks.half()
            is_finite &= blocks.isfinite().flatten(1).all(dim=1)
        return [b for b, is_ok in zip(block_ids, is_finite.tolist(), strict=True) if not is_ok]


def block_nbytes(layers: Sequence[LayerSpec], block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block in all layers."""
    num_values = sum(la.num_kv_heads * (la.head_dim + la.value_dim) for la in layers)
    num_scales = sum(la.num_kv_heads * 2 for la in layers) if dtype is torch.int8 else 0
    return (num_values * dtype.itemsize + num_scales * torch.float32.itemsize) * block_size


def _zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, part: float
) -> torch.Tensor:
    """Zeros: a masked slot is multiplied by 0, and NaN * 0 is NaN.

    On a CPU the system allocates memory as blocks are first written, a huge page at a time, which
    takes 0.1 to 5 ms. A large tensor starts ``part`` of a huge page after the beginning of one.
    These parts differ, so that not every tensor needs its next huge page for the same block.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    shift = int(part * HUGE_PAGE) // _CACHE_LINE * _CACHE_LINE if num_bytes >= MIN_SHIFTED else 0
    return huge_pages.zeros(shift + num_bytes)[shift:].view(dtype).view(shape)
