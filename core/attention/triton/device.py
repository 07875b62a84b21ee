"""Device requirements of the Triton attention kernels."""

from __future__ import annotations

import torch

from core.contract.errors import ModelLoadError
from core.kernels.triton.types import IS_INTERPRETED

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
