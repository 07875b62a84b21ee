"""Which compiled kernels compute a model on a CPU."""

from __future__ import annotations

import torch

from core.contract.config import Quantization
from core.contract.errors import ModelLoadError
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels, kernels_or_reason
from core.kernels.cpu.linear import Format
from core.model.loaded_model import LoadedModel
from core.model.prequantised import is_quantised

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}


def cpu_kernels(model: LoadedModel, quantization: Quantization) -> Kernels | None:
    """The compiled kernels, if they compute the model on a CPU; None where torch's do.

    Raises ModelLoadError if the quantisation needs kernels that are not there.
    """
    if quantization == "fp8":
        raise ModelLoadError("--quantization fp8 needs CUDA; a CPU has int8 and int4")
    compiled = kernels() if _has_known_type(model) else None
    if compiled is None and quantization != "none":
        raise ModelLoadError(
            f"--quantization {quantization} needs the compiled kernels: a C++ compiler "
            "and weights in float32 or bfloat16"
        )
    return compiled


def why_no_kernels(model: LoadedModel) -> str:
    """Why ``cpu_kernels`` has none for a model."""
    if not _has_known_type(model):
        name = str(model.dtype).removeprefix("torch.")
        kind = "a quantised checkpoint" if is_quantised(model.module) else "a model"
        return f"the compiled kernels do not compute {kind} in {name}"
    found = kernels_or_reason()
    return f"no compiled kernels: {found}" if isinstance(found, str) else "no compiled kernels"


def weight_format(model: LoadedModel, quantization: Quantization) -> Format:
    """The format in which the kernels store the matrices of a model."""
    # with int4, linear layers are in blocks already; experts are not
    return Format.INT8 if quantization in ("int8", "int4") else _FORMATS[model.dtype]


def _has_known_type(model: LoadedModel) -> bool:
    if is_quantised(model.module):
        return model.dtype is torch.float32
    return model.dtype in _FORMATS
