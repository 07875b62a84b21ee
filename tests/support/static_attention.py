"""The torch backend with decode plans, so that tests can use CUDA graph code on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.attention.torch_backend import PagedTorchBackend
from core.attention.triton.decode_plan import PackedDecodePlan, decode_words
from core.attention.triton.plan import StepPlan
from core.batch.model_input import ModelInput
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage


class StaticTorchBackend(PagedTorchBackend):
    """A GraphableBackend for CPUs: one row after the other, in simple loops."""

    def __init__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> None:
        super().__init__(storage, layers)
        self._static: StepPlan | None = None
        self.num_padding_rows = 0
        """Padding rows computed so far, over all layers."""

    def decode_plan(
        self, num_rows: int, max_context: int, words: torch.Tensor | None = None
    ) -> PackedDecodePlan:
        limits = {"block_size": self._storage.block_size, "windows": tuple(self._windows)}
        if words is None:
            words = torch.zeros(decode_words(num_rows, max_context, **limits), dtype=torch.int32)
        return PackedDecodePlan(
            words,
            num_rows=num_rows,
            max_context=max_context,
            shortest_split=256,
            partials=lambda _part: torch.empty(0),
            **limits,
        )

    def use(self, plan: PackedDecodePlan) -> None:
        self._static = plan.step

    def plan(self, batch: ModelInput) -> None:
        self._static = None
        super().plan(batch)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        if self._static is None:
            return super().forward(query, key, value, layer)
        decodes, spec = self._static.decodes, self._layers[layer]
        assert spec.softcap is None, "not in these simple loops"
        assert spec.sinks is None, "not in these simple loops"
        assert decodes is not None
        size = self._storage.block_size
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        for row, slot in enumerate(self._static.slots.tolist()):
            if slot >= 0:
                keys[slot // size, :, slot % size] = key[row]
                values[slot // size, :, slot % size] = value[row]
        output = query.new_zeros(query.shape[0], spec.num_heads, spec.value_dim)
        stride = int(decodes.table_stride)
        for row, length in enumerate(decodes.context_lens.tolist()):
            if length == 0:
                self.num_padding_rows += 1
                continue
            table = decodes.tables[row * stride :][: -(-length // size)].long()
            first = max(0, length - (spec.sliding_window or length))
            k = keys[table].transpose(0, 1).flatten(1, 2)[:, first:length]
            v = values[table].transpose(0, 1).flatten(1, 2)[:, first:length]
            q = query[row].view(spec.num_kv_heads, -1, spec.head_dim)
            weights = torch.softmax(q @ k.transpose(1, 2) * spec.scale, dim=-1)
            output[row] = (weights @ v).flatten(0, 1)
        return output

    def forward_into(
        self,
        output: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: int,
    ) -> None:
        output.copy_(self.forward(query, key, value, layer))
