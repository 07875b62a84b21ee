"""Make a loaded model fast on its device without changing its results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch

from core.contract.config import Quantization
from core.contract.errors import ModelLoadError
from core.contract.info import ModelPath
from core.fusion.cpu.available import cpu_kernels, weight_format, why_no_kernels
from core.fusion.cpu.catalogue import visit_for_cpu
from core.fusion.cpu.in_blocks import quantise_to_blocks, types_of_blocks
from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.cuda.ops import TritonOps, triton_ops
from core.fusion.path import (
    path_on_cpu,
    path_on_cuda,
    path_with_attention,
    path_without_kernels,
)
from core.fusion.visitor import Attention
from core.model.hook import AttentionHook
from core.model.loaded_model import LoadedModel

_FP8_CAPABILITY = (8, 9)
"""The compute capability from which Triton reads float8 (e4m3)."""


@dataclass(frozen=True, slots=True)
class Acceleration:
    """An attention backend for a model on its device, what was done to the model, and its path."""

    attention_backend: str
    description: str
    path: ModelPath

    def with_attention(self, model: LoadedModel, backend: str) -> Acceleration:
        """Return the same of the model with the attention that is attached, of this backend."""
        if model.executor is not None:
            return replace(self, description=f"{self.description}, attention {backend!r}")
        return replace(
            self,
            attention_backend=backend,
            description=f"{self.description}, attention {backend!r}",
            path=path_with_attention(self.path, model.module, backend),
        )


def quantise_to_4_bits(model: LoadedModel, quantization: Quantization) -> None:
    """Carry out int4, before the engine's reference is computed: it is that of the blocks.

    The distance of 4 bits from the checkpoint says nothing about the engine. Raises ModelLoadError.
    """
    if quantization == "int4":
        if model.device.type != "cpu":
            raise ModelLoadError("--quantization int4 needs a CPU; CUDA has int8 and fp8")
        quantise_to_blocks(cpu_kernels(model, quantization), model.module)


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
    return Acceleration("triton", description, path_on_cuda(counts))


def _accelerate_on_cpu(
    model: LoadedModel, hook: AttentionHook, quantization: Quantization
) -> Acceleration:
    compiled = cpu_kernels(model, quantization)
    if compiled is None:
        path = path_without_kernels(model.module, why_no_kernels(model))
        return Acceleration("torch", "torch's own kernels", path)
    fmt = weight_format(model, quantization)
    types, attention = types_of_blocks(model.module), _attention(hook)
    visitor = visit_for_cpu(compiled, model.module, attention, fmt)
    name, listed = "/".join(types) or fmt.name.lower(), _listed(visitor.counts)
    path = path_on_cpu(model.module, attention, visitor)
    return Acceleration("cpu", f"{name} weights in compiled kernels ({listed})", path)


def _attention(hook: AttentionHook) -> Attention:
    return list(zip(hook.modules, hook.layers, strict=True))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
