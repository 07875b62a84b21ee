"""Making a loaded model fast on its device, without changing what it computes."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn

from core.config import Quantization
from core.errors import ModelLoadError
from core.kernels.library import kernels
from core.kernels.linear import Format
from core.layer_spec import LayerSpec
from core.model.hook import AttentionHook
from core.model.leaves.fused import fuse_leaves
from core.model.leaves.install import install_leaves
from core.model.leaves.ops import Ops, TorchOps, TritonOps
from core.model.loader import LoadedModel

logger = logging.getLogger("roseinfer.core")

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}


@dataclass(frozen=True, slots=True)
class Acceleration:
    """What suits a model on its device: names of an attention backend and of what was done."""

    attention_backend: str
    description: str


def accelerate(model: LoadedModel, hook: AttentionHook, quantization: Quantization) -> Acceleration:
    """Replace the model's leaves by compiled ones on a CPU, by fused ones on CUDA.

    The hook must have proved the model's attention before. Raises ModelLoadError if a
    quantisation was asked for that needs what this machine lacks.
    """
    is_possible = model.device.type == "cpu" and model.dtype in _FORMATS
    library = kernels() if is_possible else None
    if library is None:
        if quantization != "none":
            raise ModelLoadError(
                f"--quantization {quantization} needs the compiled kernels: a CPU, a C++ compiler "
                "and weights in float32 or bfloat16"
            )
        return _fuse(model, hook)
    fmt = Format.INT8 if quantization == "int8" else _FORMATS[model.dtype]
    counts = install_leaves(library, model.module, _attention(hook), fmt)
    return Acceleration("cpu", f"{fmt.name.lower()} weights in compiled kernels ({_told(counts)})")


def _fuse(model: LoadedModel, hook: AttentionHook) -> Acceleration:
    """Make fewer and larger operations of the leaves, where each costs a launch."""
    if model.device.type != "cuda":
        return Acceleration("torch", "torch's own kernels")
    ops = working_ops(model.device)
    told = _told(fuse_leaves(model.module, _attention(hook), ops))
    backend = "triton" if isinstance(ops, TritonOps) else "torch"
    return Acceleration(backend, f"fused leaves ({told})")


def working_ops(device: torch.device) -> Ops:
    """Those of Triton where it works, which has to compile for it; else torch's."""
    try:
        ops = TritonOps()
        ones = torch.ones(1, 16, device=device)
        ops.rms_norm(ones, ones[0], 1e-6, 0.0)
    except ModuleNotFoundError:
        return TorchOps()
    except Exception as error:  # noqa: BLE001 - no C compiler, nowhere to write, no such device
        reason = str(error).strip().partition("\n")[0]
        logger.warning("Triton does not work here (%s): all will be slower", reason)
        return TorchOps()
    return ops


def _attention(hook: AttentionHook) -> list[tuple[nn.Module, LayerSpec]]:
    return list(zip(hook.modules, hook.layers, strict=True))


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
