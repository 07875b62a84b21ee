"""Load a GGUF file into transformers' modules.

The model is built without memory for its parameters, so that every size that the metadata claims is
compared with the tensors of the file before anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.describe import check_vocabulary
from core.gguf.facts import ROPE_FACTORS
from core.gguf.file import GgufFile, Tensor
from core.gguf.module_names import ModuleNames, modules_of
from core.gguf.values import values_of
from core.gguf.vocabulary.end_tokens import end_token_ids
from core.load.devices import pick_dtype
from core.system.torch_import import restored_if_needed

_LAYER = re.compile(r"blk\.(?P<layer>\d{1,4})\.(?P<leaf>\w+)\.(?P<suffix>weight|bias)")
_TOP = re.compile(r"(?P<leaf>\w+)\.(?P<suffix>weight|bias)")

_PERMUTED = ("attn_q", "attn_k")
_PARTS = {"ffn_gate_exps": 0, "ffn_up_exps": 1}
"""Tensors that make one parameter together, in this order."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a model, made of tensors that are stacked along its rows."""

    tensors: tuple[Tensor, ...]
    shape: tuple[int, ...]
    order: np.ndarray | None = None
    """Rows of the file in the model's order."""
    offset: float = 0.0
    """Number that the file has added to the values."""
    is_transposed: bool = False
    """True if the model has the transpose of the file's matrix."""

    def values(self, dtype: torch.dtype) -> torch.Tensor:
        """The parameter, contiguous, rounded to ``dtype``."""
        # an offset is taken off in float32, before anything is rounded
        kept = torch.float32 if self.offset else dtype
        parts = [values_of(tensor.matrix(), kept).view(tensor.shape) for tensor in self.tensors]
        value = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self.order is not None:
            value = value[torch.from_numpy(self.order)]
        if self.offset:
            value = (value - self.offset).to(dtype)
        if self.is_transposed:
            value = value.t()
        return value.reshape(self.shape).contiguous()


def weights_of(
    file: GgufFile, names: ModuleNames, head_dim: int, shapes: Mapping[str, torch.Size]
) -> dict[str, Parameter]:
    """Find the tensors of every parameter. Raises ModelLoadError if one is missing or left over.

    ``shapes`` are those of the parameters that the model needs.
    """
    found: dict[str, list[tuple[str, Tensor]]] = {}
    for name, tensor in file.tensors.items():
        if name in ROPE_FACTORS:
            continue
        parameter, leaf = _parameter_of(name, names)
        if parameter not in shapes:
            raise ModelLoadError(f"its tensor {name} has no place in a {names.model_type} model")
        found.setdefault(parameter, []).append((leaf, tensor))
    missing = sorted(shapes.keys() - found.keys())
    if missing:
        raise ModelLoadError(
            f"it lacks tensors for {len(missing)} parameters of a {names.model_type} model, such "
            f"as {missing[0]}"
        )
    return {
        parameter: _weight(
            parameter, sorted(parts, key=_order_of), names, head_dim, tuple(shapes[parameter])
        )
        for parameter, parts in found.items()
    }


def _order_of(part: tuple[str, Tensor]) -> int:
    return _PARTS.get(part[0], 0)


def _parameter_of(name: str, names: ModuleNames) -> tuple[str, str]:
    """The name of a tensor's parameter, and its own without layer and suffix."""
    match = _LAYER.fullmatch(name)
    module = None
    if match is not None:
        leaf = match["leaf"]
        inner = names.layer.get(leaf)
        module = inner and f"{names.layers}.{int(match['layer'])}.{inner}"
    elif (match := _TOP.fullmatch(name)) is not None:
        leaf = match["leaf"]
        module = names.top.get(leaf)
    if match is None or module is None:
        raise ModelLoadError(f"its tensor {name} is not known in a {names.model_type} model")
    return module if leaf.endswith("_exps") else f"{module}.{match['suffix']}", leaf


def _weight(
    parameter: str,
    parts: list[tuple[str, Tensor]],
    names: ModuleNames,
    head_dim: int,
    shape: tuple[int, ...],
) -> Parameter:
    leaf = parts[0][0]
    tensors = tuple(tensor for _, tensor in parts)
    is_matrix_of_layer = leaf in names.layer and len(tensors[0].shape) == 2
    weight = Parameter(
        tensors,
        shape,
        order=(
            _order_of_heads(tensors[0].shape[0], head_dim, parameter)
            if names.architecture.permutes_heads and leaf in _PERMUTED
            else None
        ),
        offset=names.norm_offset if parameter.endswith("norm.weight") else 0.0,
        is_transposed=names.is_transposed and is_matrix_of_layer,
    )
    _check_shape(parameter, weight)
    return weight


def _check_shape(parameter: str, weight: Parameter) -> None:
    """Refuse tensors of another shape than the model's."""
    shape = weight.shape
    shapes = [tensor.shape for tensor in weight.tensors]
    if len(shapes) == 1:
        [actual] = shapes
    elif len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 3:
        actual = (shapes[0][0], 2 * shapes[0][1], shapes[0][2])
    else:
        raise ModelLoadError(f"its tensors for {parameter} have the shapes {shapes}")
    if weight.is_transposed:
        actual = actual[::-1]
    if actual != shape and not (prod(actual) == prod(shape) == actual[-1]):  # a row is a vector
        raise ModelLoadError(
            f"its tensor {weight.tensors[0].info.name} has the shape {actual}, not {shape}"
        )


def _order_of_heads(num_rows: int, head_dim: int, parameter: str) -> np.ndarray:
    """Rows in the order of transformers.

    llama.cpp rotates neighbours, transformers the two halves of a head: the file has rows of the
    halves in turn.
    """
    if num_rows % head_dim or head_dim % 2:
        raise ModelLoadError(f"{parameter} has {num_rows} rows, which are no heads of {head_dim}")
    rows = np.arange(num_rows).reshape(-1, head_dim // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)


_MAKERS = {torch.empty, torch.ones, torch.zeros}
"""Functions with which modules make their parameters, before they are initialised."""


def load_gguf(config: ModelConfig, path: Path, device: torch.device) -> Any:
    """Load a file. Raises ModelLoadError.

    Values are float32, or the type that ``config`` names.
    """
    if config.config is not None:
        raise ModelLoadError("--config is not used with a GGUF file, which has its own")
    file = GgufFile.open(path)
    dtype = gguf_dtype(config, file, device)
    try:
        return _load(file, dtype)
    except ModelLoadError as error:
        raise ModelLoadError(f"{path} cannot be served: {error}") from error


def gguf_dtype(
    config: ModelConfig, file: GgufFile, device: torch.device, *, by_kernels: bool = False
) -> torch.dtype:
    """The type of the model that a file is loaded as; see ``pick_dtype``."""
    return pick_dtype(config.dtype, _type_of(file, device), device, by_kernels=by_kernels)


def _load(file: GgufFile, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    names, hf_config = config_of(file)
    check_vocabulary(file, hf_config.vocab_size)
    with no_init_weights(), _WithoutMemory():
        module = AutoModelForCausalLM.from_config(hf_config, dtype=dtype)
    weights = weights_in(file, names, module)
    _fill(module, weights, dtype)
    module.tie_weights()
    assert not any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
    module.generation_config.eos_token_id = sorted(end_token_ids(file.metadata)) or None
    return module


def config_of(file: GgufFile) -> tuple[ModuleNames, Any]:
    """The names of the modules of the model in a file, and its configuration in transformers."""
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import

    names, values = modules_of(file)
    return names, AutoConfig.for_model(**values)


def weights_in(file: GgufFile, names: ModuleNames, module: Any) -> dict[str, Parameter]:
    """The weights in a file of the parameters of a model. Raises ModelLoadError."""
    config = module.config
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    return weights_of(file, names, head_dim, _shapes(module))


class _WithoutMemory(torch.overrides.TorchFunctionMode):
    """Give no memory to parameters: what is made without values, or with one, is on "meta".

    ``torch.device("meta")`` would put the angles of RoPE there too. They would have to be made
    again, and their arithmetic imports a package for symbolic algebra.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            kwargs = kwargs | {"device": "meta"}
        return restored_if_needed(func, *args, **kwargs)


def _shapes(module: Any) -> dict[str, torch.Size]:
    """Shapes of the parameters that a checkpoint must have."""
    tied = set(module.all_tied_weights_keys) if module.config.tie_word_embeddings else set()
    return {name: p.shape for name, p in module.named_parameters() if name not in tied}


def _fill(module: nn.Module, weights: dict[str, Parameter], dtype: torch.dtype) -> None:
    """Write the values of the other parameters."""
    for name, weight in weights.items():
        place, _, attribute = name.rpartition(".")
        owner = module.get_submodule(place)
        value = nn.Parameter(weight.values(dtype), requires_grad=False)
        setattr(owner, attribute, value)


def _type_of(file: GgufFile, device: torch.device) -> torch.dtype:
    """The type of the matrices; float32 holds the values of quantised blocks exactly."""
    types = {t.info.type.name for t in file.tensors.values() if len(t.shape) > 1}
    if types <= {"BF16", "F32"} and "BF16" in types:
        return torch.bfloat16
    if types <= {"F16", "F32"} and "F16" in types:
        return torch.float16
    return torch.float32 if device.type == "cpu" else torch.bfloat16
