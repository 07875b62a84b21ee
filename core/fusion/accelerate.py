"""Make a loaded model fast on its device without changing its results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from core.contract.config import Quantization
from core.contract.errors import ModelLoadError
from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.in_blocks import quantise_to_blocks, types_of_blocks
from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.cuda.ops import TritonOps, triton_ops
from core.fusion.visitor import Attention
from core.kernels.cpu.library import Kernels, kernels
from core.kernels.cpu.linear import Format
from core.model.hook import AttentionHook
from core.model.loaded_model import LoadedModel
from core.model.prequantised import is_quantised

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}

_FP8_CAPABILITY = (8, 9)
"""The compute capability from which Triton reads float8 (e4m3)."""


@dataclass(frozen=True, slots=True)
class Acceleration:
    """The attention backend that suits a model on its device, and what was done to the model."""

    attention_backend: str
    description: str


def quantise_to_4_bits(model: LoadedModel, quantization: Quantization) -> None:
    """Carry out int4, before the engine's reference is computed: it is that of the blocks.

    The distance of 4 bits from the checkpoint says nothing about the engine. Raises ModelLoadError.
    """
    if quantization == "int4":
        if model.device.type != "cpu":
            raise ModelLoadError("--quantization int4 needs a CPU; CUDA has int8 and fp8")
        quantise_to_blocks(kernels(), model.module)


def is_in_blocks(model: LoadedModel) -> bool:
    """Whether weights of the model are in blocks."""
    return bool(types_of_blocks(model.module))


def is_exact(model: LoadedModel, quantization: Quantization) -> bool:
    """Whether products are those of the weights with activations in the model's type."""
    return quantization == "none" and not is_in_blocks(model)


def accelerate(model: LoadedModel, hook: AttentionHook, quantization: Quantization) -> Acceleration:
    """Replace modules of the model with fused ones. Raises ModelLoadError.

    A CPU without compiled kernels keeps torch's, unless a quantisation needs ours. CUDA needs
    Triton. The hook has proved the model's attention.
    """
    if model.device.type == "cuda":
        return accelerate_on_cuda(model, hook, triton_ops(model.device), quantization)
    return _accelerate_on_cpu(model, hook, quantization)


def cpu_kernels(model: LoadedModel, quantization: Quantization) -> Kernels | None:
    """The compiled kernels, if they compute the model on a CPU; None where torch's do.

    Raises ModelLoadError if the quantisation needs kernels that are not there.
    """
    if quantization == "fp8":
        raise ModelLoadError("--quantization fp8 needs CUDA; a CPU has int8 and int4")
    is_supported = (
        model.dtype is torch.float32 if is_quantised(model.module) else model.dtype in _FORMATS
    )
    compiled = kernels() if is_supported else None
    if compiled is None and quantization != "none":
        raise ModelLoadError(
            f"--quantization {quantization} needs the compiled kernels: a C++ compiler "
            "and weights in float32 or bfloat16"
        )
    return compiled


def accelerate_on_cuda(
    model: LoadedModel, hook: AttentionHook, ops: TritonOps, quantization: Quantization
) -> Acceleration:
    """Fuse and quantise. Raises ModelLoadError if the quantisation is not possible."""
    if quantization == "fp8" and model.device.type == "cuda":
        capability = torch.cuda.get_device_capability(model.device)
        if capability < _FP8_CAPABILITY:
            raise ModelLoadError(
                "--quantization fp8 needs a GPU of compute capability 8.9 or newer, not "
                f"{capability[0]}.{capability[1]}; int8 does not"
            )
    counts = fuse_for_cuda(model.module, _attention(hook), ops, quantization)
    description = f"fused modules ({_listed(counts)})"
    if quantization != "none":
        if not any(counts[kind] for kind in ("linear", "mlp", "qkv")):
            raise ModelLoadError(
                f"--quantization {quantization} finds no linear layer in "
                f"{type(model.module).__name__} that it could replace"
            )
        description = f"{quantization} weights, {description}"
    return Acceleration("triton", description)


def _accelerate_on_cpu(
    model: LoadedModel, hook: AttentionHook, quantization: Quantization
) -> Acceleration:
    compiled = cpu_kernels(model, quantization)
    if compiled is None:
        return Acceleration("torch", "torch's own kernels")
    # with int4, linear layers are in blocks already; experts are not
    fmt = Format.INT8 if quantization in ("int8", "int4") else _FORMATS[model.dtype]
    types = types_of_blocks(model.module)
    counts = fuse_for_cpu(compiled, model.module, _attention(hook), fmt)
    name = "/".join(types) or fmt.name.lower()
    return Acceleration("cpu", f"{name} weights in compiled kernels ({_listed(counts)})")


def _attention(hook: AttentionHook) -> Attention:
    return list(zip(hook.modules, hook.layers, strict=True))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
