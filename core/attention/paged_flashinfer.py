"""FlashInfer's paged attention, where it is installed. Compared with its source (0.7.2), never run.

Its pages in layout HND are our blocks. Eager only: one plan a step for each kind of layer, made
from host arrays. A sequence's last bits may depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import flashinfer
import numpy as np
import torch

from core.attention.cache_write import write_to_cache
from core.contract.errors import ModelLoadError
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput

DTYPES = (torch.float16, torch.bfloat16)

HEAD_DIMS = (64, 128, 256)

WORKSPACE_BYTES = 256 * 2**20
"""For partial results; the layers use it one after the other."""


class FlashInferBackend:
    """See AttentionBackend."""

    def __init__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> None:
        """Raises ModelLoadError for what FlashInfer has no kernels for."""
        _check(storage.keys[0].dtype, layers)
        self._storage = storage
        self._layers = layers
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=storage.keys[0].device)
        self._wrappers = {
            spec: flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
            for spec in dict.fromkeys(layers)
        }
        self._slots = torch.empty(0, dtype=torch.int64)

    def plan(self, batch: ModelInput) -> None:
        """Plan every kind of layer over the same pages."""
        size = self._storage.block_size
        num_blocks = -(-batch.context_lens // size)
        starts = np.concatenate([[0], np.cumsum(num_blocks)])
        is_used = np.arange(batch.block_tables.shape[1]) < num_blocks[:, None]
        dtype = self._storage.keys[0].dtype
        pages = [
            torch.from_numpy(array.astype(np.int32))
            for array in (
                batch.query_starts,
                starts,
                batch.block_tables[is_used],
                batch.context_lens - (num_blocks - 1) * size,  # tokens of the last page
            )
        ]
        for spec, wrapper in self._wrappers.items():
            wrapper.plan(
                *pages,
                spec.num_heads,
                spec.num_kv_heads,
                spec.head_dim,
                size,
                head_dim_vo=spec.value_dim,
                causal=True,
                sm_scale=spec.scale,
                # how far back a query sees, without itself
                window_left=-1 if spec.sliding_window is None else spec.sliding_window - 1,
                q_data_type=dtype,
                kv_data_type=dtype,
            )
        self._slots = batch.slots

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """See AttentionBackend."""
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        write_to_cache(keys, key, self._slots)
        write_to_cache(values, value, self._slots)
        wrapper = self._wrappers[self._layers[layer]]
        output: torch.Tensor = wrapper.run(query.contiguous(), (keys, values))
        return output


def _check(dtype: torch.dtype, layers: Sequence[LayerSpec]) -> None:
    """Say what is missing, before it is compiled for in vain."""
    if dtype not in DTYPES:
        raise ModelLoadError(f"attention backend 'flashinfer' does not compute in {dtype}")
    for spec in layers:
        if spec.head_dim not in HEAD_DIMS or spec.value_dim != spec.head_dim:
            raise ModelLoadError(
                "attention backend 'flashinfer' does not have heads of "
                f"{spec.head_dim} and {spec.value_dim} numbers"
            )
