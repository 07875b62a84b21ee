"""Paged attention on CPU with the compiled kernel.

A step is divided into items: some query rows against a range of blocks. Threads take the
items in turn, and the heads of the largest ones apart, so ragged batches keep all cores busy. If
the keys of a row are in several items, their partial softmax results are folded at the end. Two
cases need that: long contexts, which several threads share, and blocks that several sequences have
in common, which are read once for all of them (as in FlashInfer's cascade attention).

A row has the same bits for any division: keys are computed in runs, from one multiple of
``RUN_LENGTH`` to the next, and the runs are folded in order. The item with a row's first keys folds
its runs itself; every other item is one run. So a result depends neither on the batch, nor on the
chunks of a prompt, nor on the number of threads.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.attention.shared_runs import SharedRuns
from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.kernels.cpu.library import kernels
from core.kernels.cpu.structures import CACHE_TYPES, AttentionCall, AttentionStep
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

MAX_ROWS = 512
"""Most query rows (tokens times query heads per kv head) of an item. They stay in the CPU cache,
and each key is read once for all of them. Mirrors ``tiles::MAX_ROWS``
in source/attention/attention_tiles.h."""

SPREAD_ROWS = 256
"""The same, if there would be fewer items than keep all threads busy."""

RUN_LENGTH = 128
"""Tokens of a run, rounded up to whole blocks. Also the unit of prefixes that are read once."""

_Kind: TypeAlias = tuple[int | None, int, int, int]
"""Layers of one kind share a plan: sliding window, heads, kv heads, value dimension."""


class PagedCPUBackend:
    """See KernelBackend. Activations are float32, the cache float32, bfloat16 or int8."""

    def __init__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> None:
        library = kernels()
        dtype = storage.keys[0].dtype
        if library is None or dtype not in CACHE_TYPES:
            raise ModelLoadError(f"the cpu attention backend needs a compiler, and not {dtype}")
        self._kernel = library.attention
        self._layers = layers  # keeps their sinks alive: the calls point to them
        self._block_size = storage.block_size
        self._calls = [_call(storage, i, layer) for i, layer in enumerate(layers)]
        self._addresses = [ctypes.addressof(call) for call in self._calls]
        self._steps: dict[_Kind, AttentionStep] = {}
        self._kinds: dict[_Kind, LayerSpec] = {}
        for layer, call in zip(layers, self._calls, strict=True):
            kind = _kind(layer)
            self._kinds[kind] = layer
            call.step = ctypes.addressof(self._steps.setdefault(kind, AttentionStep()))
        self._plan: list[tuple[_Plan, torch.Tensor]] = []  # keeps alive what the steps point to
        self._layout: object | None = None  # of the plan

    @property
    def kernel_calls(self) -> list[int]:
        """See KernelBackend."""
        return self._addresses

    @staticmethod
    def step_nbytes(
        layers: Sequence[LayerSpec], num_tokens: int, num_seqs: int, context: int
    ) -> int:
        """See MeasuredFactory. Counts the partial results of every kind of layer."""
        return sum(
            _max_partials(layer, num_tokens, num_seqs, context) * _partial_nbytes(layer)
            for layer in {_kind(layer): layer for layer in layers}.values()
        )

    def plan(self, batch: ModelInput) -> None:
        """Divide the step into items, once per kind of layer.

        Where nothing but positions has moved on since the last step, the items are the same.
        """
        if batch.layout is not None and batch.layout is self._layout:
            for plan, _ in self._plan:
                plan.positions += 1
            return
        # a window moves on within a block
        self._layout = None if any(layer.sliding_window for layer in self._layers) else batch.layout
        self._plan = []
        for kind, step in self._steps.items():
            plan = _Plan.of(batch, self._kinds[kind], self._block_size)
            plan.fill(step, batch.slots)
            self._plan.append((plan, batch.slots))

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        call = self._calls[layer]
        dtype = query.dtype
        query, key, value = (_as_kernel_input(states) for states in (query, key, value))
        output = torch.empty(query.shape[0], call.num_heads, call.value_dim)
        call.query, call.key, call.value = query.data_ptr(), key.data_ptr(), value.data_ptr()
        call.output = output.data_ptr()
        call.query_token, call.query_head, _ = query.stride()
        call.key_token, call.key_head, _ = key.stride()
        call.value_token, call.value_head, _ = value.stride()
        self._kernel(self._addresses[layer])
        return output if dtype is torch.float32 else output.to(dtype)


def _kind(layer: LayerSpec) -> _Kind:
    return layer.sliding_window, layer.num_heads, layer.num_kv_heads, layer.value_dim


def _partial_nbytes(layer: LayerSpec) -> int:
    """Bytes of a token's partial result: values, base and sum of weights of each head."""
    return layer.num_heads * (layer.value_dim + 2) * 4


def _max_partials(layer: LayerSpec, num_tokens: int, num_seqs: int, context: int) -> int:
    """Most partial results of a step. Tokens with any read shared runs or are few; see _divide."""
    window = layer.sliding_window
    num_sharing = num_seqs if window is None and num_seqs > 1 else 0
    num_cut = _tokens_per_item(layer, SPREAD_ROWS) * ((_min_tasks() - 1) // layer.num_kv_heads)
    reach = context if window is None else min(context, window + _tokens_per_item(layer, MAX_ROWS))
    return min(num_tokens, max(num_sharing, num_cut)) * (reach // RUN_LENGTH + 2)


def _as_kernel_input(states: torch.Tensor) -> torch.Tensor:
    """Return float32 states with a contiguous last dimension, as the kernel reads them."""
    if states.dtype is not torch.float32:
        states = states.float()
    return states if states.stride(2) == 1 else states.contiguous()


def _call(storage: KVStorage, index: int, layer: LayerSpec) -> AttentionCall:
    """Return the kernel's arguments that are the same in every step."""
    keys, has_scales = storage.keys[index], bool(storage.key_scales)
    return AttentionCall(
        keys=keys.data_ptr(),
        values=storage.values[index].data_ptr(),
        key_scales=storage.key_scales[index].data_ptr() if has_scales else None,
        value_scales=storage.value_scales[index].data_ptr() if has_scales else None,
        type=CACHE_TYPES[keys.dtype],
        block_size=storage.block_size,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        value_dim=layer.value_dim,
        scale=layer.scale,
        window=layer.sliding_window or 0,
        softcap=layer.softcap or 0.0,
        sinks=None if layer.sinks is None else layer.sinks.data_ptr(),
    )


@dataclass(slots=True)
class _Items:
    """Lists of items: (first row, number of rows, sequence, first block, last block)."""

    items: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    row_tokens: list[int] = field(default_factory=list)

    def add(self, tokens: Sequence[int], sequence: int, first_block: int, last_block: int) -> None:
        self.items.append((len(self.row_tokens), len(tokens), sequence, first_block, last_block))
        self.row_tokens += tokens


@dataclass(slots=True)
class _Plan:
    """The int32 arrays of a step, and memory for partial results."""

    positions: npt.NDArray[np.int32]
    block_tables: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    row_tokens: npt.NDArray[np.int32]
    row_slots: npt.NDArray[np.int32]
    merge_tokens: npt.NDArray[np.int32]
    merge_starts: npt.NDArray[np.int32]
    partial: npt.NDArray[np.float32]
    run_length: int

    @classmethod
    def of(cls, batch: ModelInput, layer: LayerSpec, block_size: int) -> _Plan:
        shared = _sharing(batch, layer, block_size)
        if shared is None and _is_whole(batch, layer):
            return cls._of_whole(batch, block_size)
        work = _divide(batch, layer, block_size, shared)
        row_tokens = np.array(work.row_tokens, dtype=np.int32)
        row_slots, merge_tokens, merge_starts = _merges(row_tokens, len(batch.positions))
        num_partials = int(merge_starts[-1])
        items = np.array(work.items, dtype=np.int32).reshape(-1, 5)
        cost = (items[:, 4] - items[:, 3]) * items[:, 1]
        return cls(
            positions=batch.positions.numpy().astype(np.int32),
            block_tables=np.ascontiguousarray(batch.block_tables, dtype=np.int32),
            items=np.ascontiguousarray(items[np.argsort(-cost, kind="stable")]),  # longest first
            row_tokens=row_tokens,
            row_slots=row_slots,
            merge_tokens=merge_tokens,
            merge_starts=merge_starts,
            partial=np.empty(num_partials * _partial_nbytes(layer) // 4, dtype=np.float32),
            run_length=_run_blocks(block_size) * block_size,
        )

    @classmethod
    def _of_whole(cls, batch: ModelInput, block_size: int) -> _Plan:
        """The plan of a decode step whose items have a sequence each: nothing is merged."""
        num_seqs = batch.num_seqs
        last_blocks = (batch.context_lens - 1) // block_size
        order = np.argsort(-last_blocks, kind="stable")  # longest first
        items = np.zeros((num_seqs, 5), dtype=np.int32)
        items[:, 0] = items[:, 2] = order
        items[:, 1] = 1
        items[:, 4] = last_blocks[order] + 1
        none = np.zeros(1, dtype=np.int32)
        return cls(
            positions=batch.positions.numpy().astype(np.int32),
            block_tables=np.ascontiguousarray(batch.block_tables, dtype=np.int32),
            items=items,
            row_tokens=np.arange(num_seqs, dtype=np.int32),
            row_slots=np.full(num_seqs, -1, dtype=np.int32),
            merge_tokens=none[:0],
            merge_starts=none,
            partial=np.empty(0, dtype=np.float32),
            run_length=_run_blocks(block_size) * block_size,
        )

    def fill(self, step: AttentionStep, slots: torch.Tensor) -> None:
        step.slots = slots.data_ptr()
        step.positions = self.positions.ctypes.data
        step.block_tables = self.block_tables.ctypes.data
        step.items = self.items.ctypes.data
        step.row_tokens = self.row_tokens.ctypes.data
        step.row_slots = self.row_slots.ctypes.data
        step.merge_tokens = self.merge_tokens.ctypes.data
        step.merge_starts = self.merge_starts.ctypes.data
        step.partial = self.partial.ctypes.data
        step.num_tokens = len(self.positions)
        step.table_stride = self.block_tables.shape[1]
        step.num_items = len(self.items)
        step.num_merges = len(self.merge_tokens)
        step.run_length = self.run_length


def _tokens_per_item(layer: LayerSpec, rows: int) -> int:
    return max(1, rows // (layer.num_heads // layer.num_kv_heads))


def _num_items(batch: ModelInput, tokens_per_item: int) -> int:
    """Items of a step in which no sequences share runs."""
    return int((-(-np.diff(batch.query_starts) // tokens_per_item)).sum())


def _min_tasks() -> int:
    """Fewest pairs of item and kv head that keep all threads busy."""
    return 4 * torch.get_num_threads()


def _run_blocks(block_size: int) -> int:
    return -(-RUN_LENGTH // block_size)


def _num_wanted(layer: LayerSpec) -> int:
    """Fewest items that keep all threads busy."""
    return -(-_min_tasks() // layer.num_kv_heads)


def _is_whole(batch: ModelInput, layer: LayerSpec) -> bool:
    """Return true if a step without shared runs has an item for each sequence, of one token."""
    num_seqs = batch.num_seqs
    is_decode = len(batch.positions) == num_seqs
    return is_decode and layer.sliding_window is None and num_seqs >= _num_wanted(layer)


def _divide(
    batch: ModelInput, layer: LayerSpec, block_size: int, shared: SharedRuns | None
) -> _Items:
    """Divide the step into items. ``shared`` is what ``_sharing`` has found."""
    wanted = _num_wanted(layer)
    tokens_per_item = _tokens_per_item(layer, MAX_ROWS)
    if _num_items(batch, tokens_per_item) < wanted:
        tokens_per_item = _tokens_per_item(layer, SPREAD_ROWS)
    window, run = layer.sliding_window, _run_blocks(block_size)
    starts: list[int] = batch.query_starts.tolist()
    lens: list[int] = batch.context_lens.tolist()
    is_cut = _num_items(batch, tokens_per_item) < wanted
    work = _Items()
    for shared_run in shared.runs if shared else ():
        members = shared_run.members
        tokens = [starts[i] for i in members]
        for at in range(0, len(tokens), tokens_per_item):
            for low, high in _cut(
                shared_run.first, shared_run.last, run, is_cut or shared_run.first > 0
            ):
                work.add(tokens[at : at + tokens_per_item], members[0], low, high)
    for i in range(batch.num_seqs):
        num_queries = starts[i + 1] - starts[i]
        for at in range(0, num_queries, tokens_per_item):
            end = min(at + tokens_per_item, num_queries)
            first_position = lens[i] - num_queries + at
            last_position = lens[i] - num_queries + end - 1
            low = shared.starts[i] if shared else 0
            is_rest = low > 0
            if window is not None:
                low = max(first_position - window + 1, 0) // block_size
            tokens = list(range(starts[i] + at, starts[i] + end))
            for first, last in _cut(low, last_position // block_size + 1, run, is_cut or is_rest):
                work.add(tokens, i, first, last)
    return work


def _cut(low: int, high: int, run: int, is_cut: bool) -> list[tuple[int, int]]:
    """Blocks ``low`` to ``high`` in one range, or in one range per run."""
    if not is_cut:
        return [(low, high)] if low < high else []
    return list(itertools.pairwise([low, *range((low // run + 1) * run, high, run), high]))


def _sharing(batch: ModelInput, layer: LayerSpec, block_size: int) -> SharedRuns | None:
    """Find the shared runs of decoding sequences that end before their queries: none is masked.

    The rows of a prompt keep the CPU busy without sharing. None if there are no such runs.
    """
    if layer.sliding_window is not None or batch.num_seqs == 1:
        return None
    limits = np.where(np.diff(batch.query_starts) == 1, (batch.context_lens - 1) // block_size, 0)
    unit = _run_blocks(block_size)
    if limits.max() < unit:
        return None
    shared = SharedRuns(batch.block_tables, limits, unit)
    return shared if shared.runs else None


def _merges(
    row_tokens: npt.NDArray[np.int32], num_tokens: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the partial slot of each row, the tokens to merge, and their first partial slots.

    A row whose token has no other row gets slot -1.
    """
    counts = np.bincount(row_tokens, minlength=num_tokens)
    tokens = np.flatnonzero(counts > 1)
    starts = np.zeros(len(tokens) + 1, dtype=np.int32)
    row_slots = np.full(len(row_tokens), -1, dtype=np.int32)
    if len(tokens):
        np.cumsum(counts[tokens], out=starts[1:])
        partial_rows = np.flatnonzero(counts[row_tokens] > 1)
        by_token = partial_rows[np.argsort(row_tokens[partial_rows], kind="stable")]
        row_slots[by_token] = np.arange(len(by_token), dtype=np.int32)
    return row_slots, tokens.astype(np.int32), starts
