"""Size the KV cache by the memory of the device."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from core.contract.errors import ModelLoadError
from core.machine import ROOT, available_memory

logger = logging.getLogger("roseinfer.core")

CPU_RESERVE_SHARE = 0.25
MIN_CPU_RESERVE = 512 * 2**20
"""Part of a CPU's available memory that the cache leaves free, and the least in bytes.

The reserve is for the interpreter, requests, grammars and other programs.
"""

MIN_LOWERED_CONTEXT = 512
"""Shortest context in tokens to lower to. If not even this fits, the model is refused."""


def num_kv_blocks(
    *,
    block_nbytes: int,
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    budget: int,
) -> int:
    """Return the blocks that ``budget`` bytes allow, but no more than can be in use.

    Raises ModelLoadError, with both numbers, if one sequence of ``max_model_len`` does not fit.
    """
    blocks_per_seq = -(-max_model_len // block_size)
    num_blocks = min(max(budget, 0) // block_nbytes, blocks_per_seq * max_num_seqs)
    if num_blocks < blocks_per_seq:
        raise ModelLoadError(
            f"the KV cache has room for {num_blocks * block_size} tokens "
            f"({budget / 2**20:.0f} MiB), which is less than one sequence of {max_model_len}; "
            "lower --max-model-len or raise --kv-cache-memory"
        )
    return num_blocks


def lowered_context(
    max_model_len: int, *, block_size: int, block_nbytes: int, budget: Callable[[int], int]
) -> int:
    """Return ``max_model_len``, or the longest context in whole blocks that fits in memory.

    ``budget`` returns the bytes for the cache at a context length; it never grows with the length.
    A context below MIN_LOWERED_CONTEXT tokens is not lowered to. A warning gives both numbers.
    """
    blocks_per_seq = -(-max_model_len // block_size)

    def shortfall(num_blocks: int) -> int:
        length = min(num_blocks * block_size, max_model_len)
        return num_blocks * block_nbytes - budget(length)

    num_blocks = bisect_right(range(1, blocks_per_seq + 1), 0, key=shortfall)
    if num_blocks == blocks_per_seq or num_blocks * block_size < MIN_LOWERED_CONTEXT:
        return max_model_len
    length = num_blocks * block_size
    logger.warning(
        "the context is lowered from the model's %d tokens to %d: memory allows a KV cache of "
        "%.0f MiB",
        max_model_len,
        length,
        budget(length) / 2**20,
    )
    return length


def cpu_budget(step_nbytes: int, root: Path = ROOT) -> int:
    """Return the bytes that the cache may use on a CPU, besides ``step_nbytes`` for steps.

    ``root``: see core.machine.
    """
    available = available_memory(root)
    reserve = max(int(available * CPU_RESERVE_SHARE), MIN_CPU_RESERVE)
    return available - reserve - step_nbytes


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Raise ModelLoadError, naming ``what``, if the block runs out of memory."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = str(error).strip().partition("\n")[0].partition(" GPU ")[0]
        raise ModelLoadError(f"no memory on the device for {what} ({reason})") from error


class DeviceMemory(Protocol):
    """Memory usage of a device in bytes."""

    def total(self) -> int:
        """Memory of the device."""

    def elsewhere(self) -> int:
        """Memory that is neither free nor in our tensors: driver, libraries, other processes."""

    def peak_of(self, work: Callable[[], int]) -> int:
        """Peak memory of our tensors during ``work``, minus the bytes that ``work`` returns."""


def device_budget(memory: DeviceMemory, utilization: float, work: Callable[[], int]) -> int:
    """Return the bytes of the cache with which all memory is ``utilization`` of the device.

    ``work`` runs the largest step over a small cache, whose size it returns. Memory elsewhere is
    read afterwards: libraries allocate at first use.
    """
    peak = memory.peak_of(work)
    return int(memory.total() * utilization) - peak - memory.elsewhere()


class CUDAMemory:
    """See DeviceMemory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total(self) -> int:
        return torch.cuda.mem_get_info(self._device)[1]

    def elsewhere(self) -> int:
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)

    def peak_of(self, work: Callable[[], int]) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        num_borrowed = work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - num_borrowed
