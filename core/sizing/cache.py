"""Allocate the KV cache of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from core.attention.base import AttentionBackend, BackendFactory
from core.attention.grouped import GroupedAttention
from core.attention.layer_groups import LayerGroup, groups_on
from core.contract.config import EngineConfig
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage, block_nbytes
from core.kv.window_group import WindowSize, window_blocks_per_seq
from core.load.executor import Attending
from core.load.loaded_model import LoadedModel
from core.run.limits import Limits
from core.sizing.budget import cache_budget
from core.system.device_memory import enough_memory, lowered_context, num_kv_blocks


@dataclass(frozen=True, slots=True)
class KVCache:
    """The layer groups of a model, the full one first, and the storage of each.

    ``blocks_per_seq`` is the most that a sequence holds in each group.
    """

    groups: list[LayerGroup]
    storages: list[KVStorage]
    blocks_per_seq: list[int]

    @classmethod
    def of(
        cls,
        groups: list[LayerGroup],
        num_blocks: list[int],
        blocks_per_seq: list[int],
        *,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVCache:
        """Take the memory of ``num_blocks`` blocks of each group."""
        storages = [
            KVStorage(
                group.layers, num_blocks=count, block_size=block_size, dtype=dtype, device=device
            )
            for group, count in zip(groups, num_blocks, strict=True)
        ]
        return cls(groups, storages, blocks_per_seq)

    @classmethod
    def small(
        cls,
        layers: Sequence[LayerSpec],
        num_blocks: int,
        max_model_len: int,
        *,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVCache:
        """A cache of ``num_blocks`` blocks in each group, all of which a sequence may hold."""
        groups = groups_on(device, layers, max_model_len)
        counts = [num_blocks] * len(groups)
        return cls.of(groups, counts, counts, block_size=block_size, dtype=dtype, device=device)

    @property
    def num_blocks(self) -> int:
        """Blocks of the full group."""
        return self.storages[0].num_blocks

    @property
    def windows(self) -> list[WindowSize]:
        """The window groups, for the KVCacheManager."""
        groups = zip(self.groups, self.storages, self.blocks_per_seq, strict=True)
        return [
            WindowSize(storage.num_blocks, group.window, count)
            for group, storage, count in groups
            if group.window is not None
        ]

    def attention(self, factory: BackendFactory) -> AttentionBackend:
        """The backend of all layers over this cache."""
        if len(self.groups) == 1:
            return factory(self.storages[0], self.groups[0].layers)
        return GroupedAttention(factory, self.storages, self.groups)


def kv_dtype(model: LoadedModel, config: EngineConfig) -> torch.dtype:
    """The type of keys and values.

    A model whose weights are ``in_blocks`` computes in float32; its cache need not be wider than
    that of other models.
    """
    own = torch.bfloat16 if model.in_blocks else model.dtype
    types = {"auto": own, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
    return types[config.kv_cache_dtype]


def make_cache(
    model: LoadedModel,
    hook: Attending,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
    dtype: torch.dtype,
) -> tuple[KVCache, Limits]:
    """Allocate as many blocks of ``dtype`` as memory allows and the limits need.

    Returns the cache and the limits. The context is lowered if memory is too small for the model's
    own and the operator named none. Raises ModelLoadError if there is no room for one sequence.
    """
    budget = cache_budget(model, hook, make_attention, limits, config, dtype)
    groups = groups_on(model.device, hook.layers, limits.max_model_len)
    num_blocks, limits = plan_cache(groups, budget, limits, config, dtype)
    per_seq = blocks_per_seq(groups, limits)
    with enough_memory(f"{num_blocks[0]} blocks of KV cache; lower --kv-cache-memory"):
        cache = KVCache.of(
            groups,
            num_blocks,
            per_seq,
            block_size=limits.block_size,
            dtype=dtype,
            device=model.device,
        )
    return cache, limits


def plan_cache(
    groups: list[LayerGroup],
    budget: Callable[[int], int],
    limits: Limits,
    config: EngineConfig,
    dtype: torch.dtype,
) -> tuple[list[int], Limits]:
    """Return the blocks of each group, and the limits; see ``make_cache``, which allocates them.

    ``budget`` returns the bytes for the cache at a context length.
    """
    size = limits.block_size
    nbytes = [block_nbytes(group.layers, size, dtype) for group in groups]
    per_seq = blocks_per_seq(groups, limits)
    if config.max_model_len is None:

        def context_nbytes(num_blocks: int) -> int:
            return sum(min(num_blocks, n) * b for n, b in zip(per_seq, nbytes, strict=True))

        length = lowered_context(
            limits.max_model_len, block_size=size, context_nbytes=context_nbytes, budget=budget
        )
        limits = replace(limits, max_model_len=length)
        per_seq = blocks_per_seq(groups, limits)
    num_blocks = num_kv_blocks(
        block_nbytes=nbytes,
        blocks_per_seq=per_seq,
        block_size=size,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        budget=budget(limits.max_model_len),
    )
    return num_blocks, limits


def blocks_per_seq(groups: list[LayerGroup], limits: Limits) -> list[int]:
    """The most blocks of each group that a sequence holds."""
    size, chunk = limits.block_size, limits.max_num_batched_tokens
    longest = -(-limits.max_model_len // size)
    return [
        longest
        if group.window is None
        else min(longest, window_blocks_per_seq(group.window, chunk, size))
        for group in groups
    ]
