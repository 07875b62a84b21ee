"""How much memory the KV cache gets, in blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from core.contract.errors import ModelLoadError

CPU_SHARE = 0.4
"""Part of a CPU machine's available memory that the cache may fill; it is taken as it is used."""


def num_kv_blocks(
    *,
    block_nbytes: int,
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    budget: int,
) -> int:
    """Blocks to allocate: what ``budget`` bytes allow, but no more than could ever be in use.

    Raises ModelLoadError, with both numbers, if not even one full-length sequence fits.
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


def cpu_budget() -> int:
    """Bytes that the cache may take on a CPU now."""
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * CPU_SHARE)


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Raise ModelLoadError if the device has no memory for ``what`` is done in the block."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).strip().partition("\n")[0].partition(" GPU ")[0]
        raise ModelLoadError(f"no memory on the device for {what} ({reason})") from error


class DeviceMemory(Protocol):
    """What a device's memory is used for. All counts are bytes."""

    def total(self) -> int:
        """All there is."""

    def elsewhere(self) -> int:
        """What is neither free nor in our tensors: the driver, libraries, other processes."""

    def peak_of(self, work: Callable[[], int]) -> int:
        """Most that our tensors took at any time of ``work``, less what it says it borrowed."""


def device_budget(memory: DeviceMemory, utilization: float, work: Callable[[], int]) -> int:
    """Bytes that the cache may take, so that all together take ``utilization`` of the device.

    ``work`` is a step as large as any, over a small cache whose size it returns. What is found
    elsewhere is asked for afterwards, since libraries take their memory when they are first used.
    """
    peak = memory.peak_of(work)
    return int(memory.total() * utilization) - peak - memory.elsewhere()


class CUDAMemory:
    """See DeviceMemory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total(self) -> int:
        """See DeviceMemory."""
        return torch.cuda.mem_get_info(self._device)[1]

    def elsewhere(self) -> int:
        """See DeviceMemory."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)

    def peak_of(self, work: Callable[[], int]) -> int:
        """See DeviceMemory."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        num_borrowed = work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - num_borrowed
