"""TritonBackend: paged attention on CUDA with Triton kernels.

A step launches one cache write per layer. Sequences that compute one token use the split-KV decode
kernel, and a merge if a context is long enough to be split. All other sequences use the chunk
kernel. The result of a sequence is bitwise independent of the rest of the batch.

``decode_plan`` and ``use`` serve CUDA graphs (``core/run/graphs``)::

    plan = backend.decode_plan(num_rows, max_context)     # once per graph
    backend.use(plan)
    ... run once eagerly, which compiles the kernels; then capture the forward pass ...

    num_words = plan.fill(batch, words)                   # each step
    ... copy them to plan.words on the replaying stream ...
    graph.replay()

Capture and replays must be on one stream, or be ordered by events: all plans share the memory of
partial results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from core.attention.triton.decode_plan import PackedDecodePlan, decode_words
from core.attention.triton.layer import Scales, TritonLayer
from core.attention.triton.plan import (
    Arrays,
    Layout,
    StepPlan,
    chunk_arrays,
    chunk_part,
    decode_part,
    split_arrays,
)
from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.kernels.triton.attention.parts import SHORTEST_SPLIT, DecodePart
from core.kernels.triton.attention.shape import kernel_shape, power_of_two
from core.kernels.triton.types import IS_INTERPRETED
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from core.system.pinned import Uploads


class TritonBackend:
    """See GraphableBackend. Core thread only.

    ``dtype`` is the type of the queries. By default it is the type of the cache, or bfloat16 if the
    cache is float8. ``scales``, one entry per layer, are those of a float8 cache; the default is 1.
    Tests set ``shortest_split``.
    """

    def __init__(
        self,
        storage: KVStorage,
        layers: Sequence[LayerSpec],
        *,
        dtype: torch.dtype | None = None,
        scales: Sequence[Scales] | None = None,
        shortest_split: int = SHORTEST_SPLIT,
    ) -> None:
        """Raises ModelLoadError if the kernels cannot run."""
        self._device = storage.keys[0].device
        cache_dtype = storage.keys[0].dtype
        check_support(self._device, storage.block_size, cache_dtype)
        is_float8 = cache_dtype == torch.float8_e4m3fn
        if dtype is None:
            dtype = torch.bfloat16 if is_float8 else cache_dtype
        if is_float8 and scales is None:
            scales = [_unit_scales(layer, self._device) for layer in layers]
        self._dtype = dtype
        self._block_size = storage.block_size
        self._shortest_split = shortest_split
        self._windows = tuple(dict.fromkeys(layer.sliding_window for layer in layers))
        shared_memory, max_programs = launch_limits(self._device)
        self._layers = [
            TritonLayer(
                keys=storage.keys[i],
                values=storage.values[i],
                scales=None if scales is None else scales[i],
                sinks=None if layer.sinks is None else layer.sinks.to(self._device),
                shape=kernel_shape(
                    layer,
                    block_size=storage.block_size,
                    dtype=dtype,
                    cache_dtype=cache_dtype,
                    shared_memory=shared_memory,
                    largest_tile=shortest_split,
                ),
                max_programs=max_programs,
            )
            for i, layer in enumerate(layers)
        ]
        self._tile_sizes = {layer.shape.chunk_tokens for layer in self._layers}
        self._uploads = Uploads(self._device)
        self._words = torch.empty(0, dtype=torch.int32, device=self._device)
        self._partials = torch.empty(0, dtype=torch.float32, device=self._device)
        self._plan: StepPlan | None = None

    def plan(self, batch: ModelInput) -> None:
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
    ) -> PackedDecodePlan:
        """See GraphableBackend. ``words`` must be aligned to 16 bytes."""
        if words is None:
            num_words = decode_words(
                num_rows, max_context, block_size=self._block_size, windows=self._windows
            )
            words = torch.zeros(num_words, dtype=torch.int32, device=self._device)
        return PackedDecodePlan(
            words,
            num_rows=num_rows,
            max_context=max_context,
            block_size=self._block_size,
            windows=self._windows,
            shortest_split=self._shortest_split,
            partials=self._partials_for,
        )

    def use(self, plan: PackedDecodePlan) -> None:
        self._plan = plan.step

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        shape = self._layers[layer].shape
        output = query.new_empty(query.shape[0], shape.num_heads, shape.value_dim)
        self.forward_into(output, query, key, value, layer)
        return output

    def forward_into(
        self,
        output: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: int,
    ) -> None:
        assert self._plan is not None
        assert query.dtype == self._dtype
        self._layers[layer].attend(output, query, key, value, self._plan)

    def _partials_for(self, part: DecodePart) -> torch.Tensor:
        """Return memory for the partial results of the decodes of one layer.

        All layers and plans share it. A plan made before the memory grew keeps the older tensor.
        """
        num_floats = max(layer.num_partials(part) for layer in self._layers)
        if len(self._partials) < num_floats:
            num_floats = power_of_two(num_floats)  # contexts grow: do not reallocate each step
            self._partials = torch.empty(num_floats, dtype=torch.float32, device=self._device)
        return self._partials


def _unit_scales(layer: LayerSpec, device: torch.device) -> Scales:
    ones = torch.ones(layer.num_kv_heads, dtype=torch.float32, device=device)
    return ones, ones


FLOAT8_CAPABILITY = (8, 9)
"""Compute capability from which Triton converts float8 (e4m3)."""

PROGRAMS_PER_PROCESSOR = 16
"""Decode programs per multiprocessor at most. Several times what one runs at once, so that the
device stays busy until the last programs end."""


def check_support(device: torch.device, block_size: int, cache_dtype: torch.dtype) -> None:
    """Raise ModelLoadError if the kernels cannot run with this device, block size and cache."""
    if device.type != "cuda" and not IS_INTERPRETED:
        raise ModelLoadError("attention backend 'triton' needs a GPU; on a CPU use 'torch'")
    if block_size & (block_size - 1):
        raise ModelLoadError(
            f"attention backend 'triton' needs a power of two as block size, not {block_size}"
        )
    needs_float8 = cache_dtype == torch.float8_e4m3fn and device.type == "cuda"
    if needs_float8 and torch.cuda.get_device_capability(device) < FLOAT8_CAPABILITY:
        raise ModelLoadError("an fp8 KV cache needs a GPU of compute capability 8.9 or later")


def launch_limits(device: torch.device) -> tuple[int, int]:
    """Return the shared memory of a program in bytes, and the most programs of a decode launch."""
    if device.type != "cuda":
        return 227 * 1024, 8
    properties = torch.cuda.get_device_properties(device)
    programs = properties.multi_processor_count * PROGRAMS_PER_PROCESSOR
    shared = getattr(
        properties, "shared_memory_per_block_optin", properties.shared_memory_per_block
    )
    return shared, programs
