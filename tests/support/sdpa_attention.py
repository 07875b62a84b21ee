"""The attention oracle: gather each sequence, then call ``scaled_dot_product_attention``.

It is slow and simple. The tests compare every backend with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

from core.attention.cache_write import write_to_cache
from core.batch.model_input import ModelInput
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage


class SDPABackend:
    """See AttentionBackend."""

    def __init__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> None:
        self._storage = storage
        self._layers = layers
        self._batch: ModelInput | None = None

    def plan(self, batch: ModelInput) -> None:
        self._batch = batch

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        batch, spec = self._batch, self._layers[layer]
        assert batch is not None
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        write_to_cache(keys, key, batch.slots)
        write_to_cache(values, value, batch.slots)
        outputs = []
        for i in range(batch.num_seqs):
            start, end = int(batch.query_starts[i]), int(batch.query_starts[i + 1])
            length = int(batch.context_lens[i])
            table = torch.from_numpy(batch.block_tables[i]).to(query.device)
            k = keys[table].transpose(0, 1).flatten(1, 2)[:, :length]  # [kv_heads, length, dim]
            v = values[table].transpose(0, 1).flatten(1, 2)[:, :length]
            q_positions = torch.arange(length - (end - start), length, device=query.device)[:, None]
            k_positions = torch.arange(length, device=query.device)
            mask = k_positions <= q_positions
            if spec.sliding_window is not None:
                mask &= k_positions > q_positions - spec.sliding_window
            q = query[start:end].transpose(0, 1)
            outputs.append(_attend(q, k, v, mask, spec).transpose(0, 1))
        return torch.cat(outputs)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """``[heads, length, dim]`` each."""
    if spec.softcap is None and spec.sinks is None:
        gqa = spec.num_heads != spec.num_kv_heads
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=spec.scale, enable_gqa=gqa
        )
    group = spec.num_heads // spec.num_kv_heads
    k, v = (states.repeat_interleave(group, dim=0) for states in (k, v))
    scores = torch.einsum("hqd,hkd->hqk", q.double(), k.double()) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    weights = scores.exp() * mask
    total = weights.sum(-1, keepdim=True)
    if spec.sinks is not None:
        total = total + spec.sinks.to(q.device).double().exp()[:, None, None]
    return (weights / total @ v.double()).to(q.dtype)
