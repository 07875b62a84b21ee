"""Making a loaded model fast on its device, without changing what it computes."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn

from core.contract.config import Quantization
from core.contract.errors import ModelLoadError
from core.fusion.cpu.install import install_leaves
from core.fusion.cuda.fuse import fuse_leaves
from core.fusion.cuda.ops import Ops, TorchOps, TritonOps
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.layer_spec import LayerSpec
from core.model.hook import AttentionHook
from core.model.loader import LoadedModel
from core.model.prequantised import is_quantised

logger = logging.getLogger("roseinfer.core")

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}


_FP8_CAPABILITY = (8, 9)
"""What Triton reads float8 (e4m3) on."""


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
    if model.device.type == "cuda":
        return fuse(model, hook, working_ops(model.device), quantization)
    if quantization == "fp8":
        raise ModelLoadError("--quantization fp8 needs CUDA; a CPU has int8")
    is_known = (
        model.dtype is torch.float32 if is_quantised(model.module) else model.dtype in _FORMATS
    )
    library = kernels() if is_known else None
    if library is None:
        if quantization != "none":
            raise ModelLoadError(
                f"--quantization {quantization} needs the compiled kernels: a C++ compiler "
                "and weights in float32 or bfloat16"
            )
        return Acceleration("torch", "torch's own kernels")
    fmt = Format.INT8 if quantization == "int8" else _FORMATS[model.dtype]
    counts = install_leaves(library, model.module, _attention(hook), fmt)
    return Acceleration("cpu", f"{fmt.name.lower()} weights in compiled kernels ({_told(counts)})")


def fuse(
    model: LoadedModel, hook: AttentionHook, ops: Ops, quantization: Quantization
) -> Acceleration:
    """Make fewer and larger operations of the leaves, where each costs a launch.

    Raises ModelLoadError if matrices cannot be quantised as asked.
    """
    has_triton = isinstance(ops, TritonOps)
    if quantization != "none":
        _check(model.device, quantization, has_triton=has_triton)
    counts = fuse_leaves(model.module, _attention(hook), ops, quantization)
    told = f"fused leaves ({_told(counts)})"
    if quantization != "none":
        if not any(counts[kind] for kind in ("linear", "mlp", "qkv")):
            raise ModelLoadError(
                f"--quantization {quantization} finds no linear layer in "
                f"{type(model.module).__name__} that it could replace"
            )
        told = f"{quantization} weights, {told}"
    return Acceleration("triton" if has_triton else "torch", told)


def _check(device: torch.device, quantization: Quantization, *, has_triton: bool) -> None:
    if not has_triton:
        raise ModelLoadError(f"--quantization {quantization} on CUDA needs a working Triton")
    if quantization == "fp8" and device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability < _FP8_CAPABILITY:
            raise ModelLoadError(
                "--quantization fp8 needs a GPU of compute capability 8.9 or newer, not "
                f"{capability[0]}.{capability[1]}; int8 does not"
            )


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
