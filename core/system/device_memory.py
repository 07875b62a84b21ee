"""Size the KV cache by the memory of the device."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from core.contract.errors import ModelLoadError
from core.system.machine import ROOT, available_memory

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
    block_nbytes: Sequence[int],
    blocks_per_seq: Sequence[int],
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    budget: int,
) -> list[int]:
    """Blocks of each layer group: what ``budget`` bytes allow, but no more than can be in use.

    ``block_nbytes`` are the bytes of a block of each group, ``blocks_per_seq`` the most that a
    sequence holds. All groups get equally many, so that short sequences find as much room as in a
    cache without groups. If that is too little for one full-length sequence in the full group, the
    window groups get fewer, but enough for one.

    Raises ModelLoadError, with both numbers, if not even one full-length sequence fits.
    """
    most = [count * max_num_seqs for count in blocks_per_seq]
    equal = _largest(most[0], block_nbytes, [0] * len(most), most, budget)
    if equal < blocks_per_seq[0]:
        least = list(blocks_per_seq)
        if _nbytes(least, block_nbytes) > budget:
            room = _largest(least[0], block_nbytes, [0] * len(least), least, budget) * block_size
            raise ModelLoadError(
                f"the KV cache has room for {room} tokens "
                f"({budget / 2**20:.0f} MiB), which is less than one sequence of {max_model_len}; "
                "lower --max-model-len or raise --kv-cache-memory"
            )
        equal = _largest(least[0], block_nbytes, least, most, budget)
        return _clip(equal, least, most)
    return _clip(equal, [0] * len(most), most)


def _clip(count: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    return [min(max(count, low), high) for low, high in zip(least, most, strict=True)]


def _nbytes(counts: Sequence[int], block_nbytes: Sequence[int]) -> int:
    return sum(count * nbytes for count, nbytes in zip(counts, block_nbytes, strict=True))


def _largest(
    limit: int, block_nbytes: Sequence[int], least: Sequence[int], most: Sequence[int], budget: int
) -> int:
    """The largest count up to ``limit`` whose clipped counts fit ``budget``; 0 if none does."""
    counts = range(limit + 1)
    fits = bisect_right(
        counts, budget, key=lambda count: _nbytes(_clip(count, least, most), block_nbytes)
    )
    return max(fits - 1, 0)


def lowered_context(
    max_model_len: int,
    *,
    block_size: int,
    context_nbytes: Callable[[int], int],
    budget: Callable[[int], int],
) -> int:
    """Return ``max_model_len``, or the longest context in whole blocks that fits in memory.

    ``context_nbytes`` returns the bytes that a context of so many blocks takes.
    ``budget`` returns the bytes for the cache at a context length; it never grows with the length.
    A context below MIN_LOWERED_CONTEXT tokens is not lowered to. A warning gives both numbers.
    """
    blocks_per_seq = -(-max_model_len // block_size)

    def shortfall(num_blocks: int) -> int:
        length = min(num_blocks * block_size, max_model_len)
        return context_nbytes(num_blocks) - budget(length)

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


def cpu_budget(step_nbytes: int, root: Path = ROOT, *, to_load: int = 0) -> int:
    """Return the bytes that the cache may use on a CPU, besides ``step_nbytes`` for steps.

    ``root``: see core.system.machine. ``to_load`` bytes of weights are not loaded yet.
    """
    available = max(0, available_memory(root) - to_load)
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
