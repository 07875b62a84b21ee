"""Make transformers' module fast on its device without changing its results."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch

from core.attention.base import AttentionBackend, BackendFactory, backend_factory
from core.contract.config import EngineConfig, Quantization
from core.contract.errors import ModelLoadError
from core.contract.info import ONE_CALL, ModelPath, PathName
from core.fusion.catalogue import fuse_for_cuda
from core.fusion.ops import TritonOps, triton_ops
from core.fusion.visitor import Attention
from core.hook.hook import AttentionHook
from core.kernels.cpu.library import kernels
from core.load.loaded_model import LoadedModel

_FP8_CAPABILITY = (8, 9)
"""The compute capability from which Triton reads float8 (e4m3)."""

_MODULES: PathName = "transformers' modules"
_DEVICES = {"cuda": "CUDA", "cpu": "a CPU"}

Instrument: TypeAlias = Callable[[LoadedModel, AttentionBackend], AttentionBackend]
"""Gets a model and its attention before the first step; returns the attention to use."""


@dataclass(frozen=True, slots=True)
class Acceleration:
    """An attention backend for a model on its device, what was done to the model, and its path."""

    attention_backend: str
    description: str
    path: ModelPath


def accelerate(model: LoadedModel, hook: AttentionHook, quantization: Quantization) -> Acceleration:
    """Replace modules of the model with fused ones on CUDA. Raises ModelLoadError.

    On a CPU the modules stay: what is fast there is a model that a row describes. CUDA needs
    Triton. The hook has proved the model's attention.
    """
    if model.device.type == "cuda":
        return accelerate_on_cuda(model, hook, triton_ops(model.device), quantization)
    if quantization != "none":
        raise ModelLoadError(
            f"--quantization {quantization} needs CUDA, or a model that a row describes"
        )
    is_known = model.dtype in {torch.float32, torch.bfloat16} and kernels() is not None
    why = model.undescribed
    path = ModelPath(name=_MODULES, expected=ONE_CALL if why else _MODULES, slower_because=why)
    return Acceleration("cpu" if is_known else "torch", "torch's own kernels", path)


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
    if quantization == "int4":
        raise ModelLoadError("--quantization int4 needs a CPU; CUDA has int8 and fp8")
    counts = fuse_for_cuda(model.module, _attention(hook), ops, quantization)
    description = f"fused modules ({_listed(counts)})"
    if quantization != "none":
        if not any(counts[kind] for kind in ("linear", "mlp", "qkv")):
            raise ModelLoadError(
                f"--quantization {quantization} finds no linear layer in "
                f"{type(model.module).__name__} that it could replace"
            )
        description = f"{quantization} weights, {description}"
    name: PathName = "module by module" if any(counts.values()) else _MODULES
    return Acceleration("triton", description, ModelPath(name=name, expected=name))


def _attention(hook: AttentionHook) -> Attention:
    return list(zip(hook.modules, hook.layers, strict=True))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def attention_factory(name: str, model: LoadedModel, config: EngineConfig) -> BackendFactory:
    """The constructor of a backend. Raises ModelLoadError if it does not support the config."""
    factory = backend_factory(name)
    dtype, device = config.kv_cache_dtype, model.device.type
    if dtype == "auto":
        return factory
    needed = {"fp8": ("triton", "cuda"), "int8": ("cpu", "cpu")}[dtype]
    if (name, device) != needed:
        raise ModelLoadError(
            f"--kv-cache-dtype {dtype} needs {_DEVICES[needed[1]]} and the attention backend "
            f"{needed[0]!r}, not {name!r} on {device}"
        )
    if dtype == "int8":
        return factory
    return functools.partial(cast("Any", factory), dtype=model.dtype)
