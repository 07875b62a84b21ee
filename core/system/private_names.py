"""The private names of torch and transformers in this repository. No other file has one.

Tried with torch 2.13 and with transformers 5.17 and 5.24, which CI runs (``make test-versions``).
Each name says what happens in a release without it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

META_REGISTRATIONS = "torch._meta_registrations"
"""The module that ``torch_import`` defers. Without it: torch is imported whole."""

META_PARTS = ("torch._decomp", "torch._prims", "torch._refs")
"""Modules that it imports, which are then attributes of torch. Without them: nothing is missing."""

COMPILER = "torch._dynamo"
"""torch's compiler, which ``modelling_import`` defers. Without it: what replaces it is imported."""

COMPILER_MASKS = "torch._dynamo._trace_wrapped_higher_order_op"
"""The module with the class that functions of masks use. Without it: as without ``COMPILER``."""


def set_generator_metaclass(torch: Any) -> None:
    """Do for ``torch.Generator`` what the deferred module does. Without the names: nothing."""
    with suppress(AttributeError, ImportError):
        from torch._opaque_base import OpaqueBaseMeta  # noqa: PLC0415 - torch is being imported

        torch._C._set_generator_metaclass(OpaqueBaseMeta)  # noqa: SLF001


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has bfloat16 instructions. Without the names: False, so float32 is used."""
    import torch.cpu  # noqa: PLC0415 - this file is imported before torch is

    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in names)


def end_allocation_to_pool(device_index: int, pool: Any) -> None:
    """End a failed capture's allocation from a pool of CUDA graphs, if it has not ended.

    After a failed capture torch 2.11 still allocates from this pool and cannot free memory. Later
    releases end it themselves, and then raise here. Without the name: nothing is done.
    """
    import torch  # noqa: PLC0415

    with suppress(AttributeError, RuntimeError):
        torch._C._cuda_endAllocateToPool(device_index, pool)  # noqa: SLF001


def has_hooks(module: nn.Module) -> bool:
    """Whether calls of a module run hooks. Without the names: AttributeError when a model loads."""
    return bool(module._forward_hooks or module._forward_pre_hooks)  # noqa: SLF001


def is_stateful(model: Any) -> bool:
    """Whether transformers marks a model as one with state. Without the name: False.

    The types of its layers then decide alone.
    """
    return bool(getattr(model, "_is_stateful", False))


def int8_matmul() -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """torch's GEMM of int8, which has no public name. Without it: AttributeError in a benchmark."""
    import torch  # noqa: PLC0415

    return torch._int_mm  # noqa: SLF001
