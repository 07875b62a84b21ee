"""TritonBackend: attention over the paged cache in kernels of our own.

A step is one write launch, then for sequences that compute one token a split-KV decode (and a
merge, if a context is long enough to be split), and for all others the chunk kernel. What a
sequence gets does not depend on what else is in the batch, to the last bit.

For CUDA graphs (``core/model/graphs.py``), whose launches must be the same each time::

    plan = backend.decode_plan(num_rows, max_context)     # once for each shape of graph
    backend.use(plan)                                     # before capture and before warm-up
    ... capture the model's forward pass over num_rows tokens ...

    backend.plan_decode(batch, plan)                      # each step, on the replaying stream
    graph.replay()

Between the capture and the replays nothing of the plan moves: sizes of grids follow from
``num_rows`` and ``max_context`` alone, and every number of a step is read from ``plan.words``.
``plan_decode`` is one copy from pinned memory. A runner that has one buffer of its own for all
inputs passes a slice of its device buffer to ``decode_plan`` (16-byte aligned, of
``decode_words(...)`` words), calls ``plan.fill(batch, host_slice)`` instead and copies it all
together. Rows beyond the batch are padding: they write to no slot (there is no scratch block),
read nothing, and their attention is zeros, so that what the model makes of them stays finite.
Compile before capture: run one step eagerly with ``use(plan)``. Capture and replay must be on one
stream, or ordered by events, since all plans share the memory for partial results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from core.attention.triton.plan import (
    Arrays,
    DecodePlan,
    Layout,
    StepPlan,
    chunk_arrays,
    chunk_part,
    decode_part,
    decode_words,
    split_arrays,
)
from core.contract.errors import ModelLoadError
from core.kernels.triton.attention.chunk import launch_chunks
from core.kernels.triton.attention.decode import launch_decode
from core.kernels.triton.attention.merge import launch_merge
from core.kernels.triton.attention.parts import DecodePart
from core.kernels.triton.attention.shape import kernel_shape, power_of_two
from core.kernels.triton.attention.splits import SHORTEST_SPLIT
from core.kernels.triton.attention.types import IS_INTERPRETED
from core.kernels.triton.attention.write import launch_write
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput
from core.pinned import Uploads

KVScales = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""For every layer the scales of keys and of values, ``[num_kv_heads]`` float32 each."""

PROGRAMS_PER_PROCESSOR = 16
"""Decode programs launched for each multiprocessor, if there is so much to do: several times what
runs at once, so that the last ones do not leave half the device idle."""


class TritonBackend:
    """See AttentionBackend, and the module for what it offers to CUDA graphs. Core thread only.

    Queries are of type ``dtype``, by default that of the cache, or bfloat16 over a float8 cache.
    For such a cache ``scales`` says what one unit of the stored numbers is; without them 1.
    ``shortest_split`` is for tests.
    """

    def __init__(
        self,
        storage: KVStorage,
        layers: Sequence[LayerSpec],
        *,
        dtype: torch.dtype | None = None,
        scales: KVScales | None = None,
        shortest_split: int = SHORTEST_SPLIT,
    ) -> None:
        """Raises ModelLoadError where the kernels cannot run."""
        self._storage = storage
        self._layers = layers
        self._device = storage.keys[0].device
        _check(self._device, storage.block_size)
        self._shortest_split = shortest_split
        self._windows = tuple(dict.fromkeys(layer.sliding_window for layer in layers))
        cache_dtype = storage.keys[0].dtype
        is_float8 = cache_dtype == torch.float8_e4m3fn
        if dtype is None:
            dtype = torch.bfloat16 if is_float8 else cache_dtype
        if is_float8:
            _check_float8(self._device)
        if is_float8 and scales is None:
            scales = [_unit_scales(layer, self._device) for layer in layers]
        self._dtype, self._scales = dtype, scales
        shared_memory, self._max_programs = _limits(self._device)
        self._shapes = [
            kernel_shape(
                layer,
                block_size=storage.block_size,
                dtype=dtype,
                cache_dtype=cache_dtype,
                shared_memory=shared_memory,
                largest_tile=shortest_split,
            )
            for layer in layers
        ]
        self._tile_sizes = {shape.chunk_tokens for shape in self._shapes}
        self._uploads = Uploads(self._device)
        self._words = torch.empty(0, dtype=torch.int32, device=self._device)
        self._partials = torch.empty(0, dtype=torch.float32, device=self._device)
        self._plan: StepPlan | None = None

    def plan(self, batch: ModelInput) -> None:
        """See AttentionBackend."""
        is_decode = np.diff(batch.query_starts) == 1
        decodes, chunks = np.flatnonzero(is_decode), np.flatnonzero(~is_decode)
        tables = batch.block_tables
        if len(chunks):
            tables = tables[np.concatenate([decodes, chunks])]
        splits, totals = split_arrays(
            batch.context_lens[decodes], self._windows, self._shortest_split
        )
        arrays: Arrays = {
            "table_stride": np.array([tables.shape[1]]),
            "tokens": batch.query_starts[decodes],
            "context_lens": batch.context_lens[decodes],
            **splits,
            **(chunk_arrays(batch, chunks, len(decodes), self._tile_sizes) if len(chunks) else {}),
            "tables": tables,
        }
        layout = Layout(arrays)
        if len(self._words) < layout.num_words:
            self._words = torch.empty(
                power_of_two(layout.num_words), dtype=torch.int32, device=self._device
            )
        layout.fill(arrays, self._uploads.take(layout.num_words))
        self._uploads.send(layout.num_words, self._words)
        part = decode_part(layout, self._words, len(decodes), totals) if len(decodes) else None
        self._plan = StepPlan(
            slots=batch.slots,
            decodes=part,
            chunks=chunk_part(layout, self._words, self._tile_sizes) if len(chunks) else None,
            partials=self._partials if part is None else self._partials_for(part),
        )

    def decode_plan(
        self, num_rows: int, max_context: int, words: torch.Tensor | None = None
    ) -> DecodePlan:
        """A plan for steps of up to ``num_rows`` single tokens and ``max_context`` tokens each.

        ``words``, on the device, is where its numbers will be; without them it makes its own.
        """
        if words is None:
            num_words = decode_words(
                num_rows, max_context, block_size=self._storage.block_size, windows=self._windows
            )
            words = torch.zeros(num_words, dtype=torch.int32, device=self._device)
        return DecodePlan(
            words,
            num_rows=num_rows,
            max_context=max_context,
            block_size=self._storage.block_size,
            windows=self._windows,
            shortest_split=self._shortest_split,
            partials=self._partials_for,
        )

    def use(self, plan: DecodePlan) -> None:
        """Make ``plan`` what ``forward`` computes, whatever its words are by then."""
        self._plan = plan.step

    def plan_decode(self, batch: ModelInput, plan: DecodePlan) -> None:
        """Copy a step of single tokens into ``plan``, and use it."""
        num_words = plan.fill(batch, self._uploads.take(len(plan.words)))
        self._uploads.send(num_words, plan.words)
        self.use(plan)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """See AttentionBackend."""
        plan, shape = self._plan, self._shapes[layer]
        assert plan is not None
        assert query.dtype == self._dtype
        query, key, value = (_with_rows(states) for states in (query, key, value))
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        scales = None if self._scales is None else self._scales[layer]
        launch_write(keys, values, key, value, plan.slots, scales, shape)
        output = query.new_empty(query.shape[0], shape.num_heads, shape.value_dim)
        if plan.decodes is not None:
            splits = plan.decodes.splits[self._layers[layer].sliding_window]
            launch_decode(
                output,
                plan.partials,
                query,
                keys,
                values,
                scales,
                plan.decodes,
                splits,
                shape,
                max_programs=self._max_programs,
            )
            if splits.may_merge:
                launch_merge(output, plan.partials, plan.decodes, splits, shape)
        if plan.chunks is not None:
            launch_chunks(output, query, keys, values, scales, plan.chunks, shape)
        return output

    def _partials_for(self, part: DecodePart) -> torch.Tensor:
        """Memory for what the decodes of one layer leave to the merge.

        All layers and plans share it; a plan that was made before it had to grow keeps its own.
        """
        num_floats = 0
        for layer, shape in zip(self._layers, self._shapes, strict=True):
            splits = part.splits[layer.sliding_window]
            if splits.may_merge:
                size = splits.max_num_splits * shape.num_heads * shape.partial_size
                num_floats = max(num_floats, size)
        if len(self._partials) < num_floats:
            num_floats = power_of_two(num_floats)  # contexts grow: not anew at each step
            self._partials = torch.empty(num_floats, dtype=torch.float32, device=self._device)
        return self._partials


def _check(device: torch.device, block_size: int) -> None:
    """Say what is missing, before a kernel fails in a step."""
    if device.type != "cuda" and not IS_INTERPRETED:
        raise ModelLoadError("attention backend 'triton' needs a GPU; on a CPU use 'torch'")
    if block_size & (block_size - 1):
        raise ModelLoadError(
            f"attention backend 'triton' needs blocks of a power of two tokens, not {block_size}"
        )


def _check_float8(device: torch.device) -> None:
    """Say that the device cannot convert numbers of 8 bits, before a kernel is compiled for it."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise ModelLoadError("an fp8 KV cache needs a GPU of compute capability 8.9 or later")


def _limits(device: torch.device) -> tuple[int, int]:
    """Bytes of shared memory that a program may have, and most programs of a decode launch."""
    if device.type != "cuda":
        return 227 * 1024, 8
    properties = torch.cuda.get_device_properties(device)
    programs = properties.multi_processor_count * PROGRAMS_PER_PROCESSOR
    shared = getattr(
        properties, "shared_memory_per_block_optin", properties.shared_memory_per_block
    )
    return shared, programs


def _unit_scales(layer: LayerSpec, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    ones = torch.ones(layer.num_kv_heads, dtype=torch.float32, device=device)
    return ones, ones


def _with_rows(states: torch.Tensor) -> torch.Tensor:
    """``states`` with the numbers of one head side by side, as the kernels read them."""
    return states if states.stride(2) == 1 else states.contiguous()
