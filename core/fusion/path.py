"""Which path computes a model, and why it is not the faster one that its family has."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from core.contract.info import PATHS, ModelPath, PathName
from core.fusion.cpu.decoder import fused_decoder
from core.fusion.cpu.layer import ROTATION, FusedLayer
from core.fusion.rotary import applies_rope
from core.fusion.visitor import Attention, Visitor, place_of
from core.model.prequantised import is_quantised

FAMILIES: Mapping[PathName, Collection[str]] = {
    "whole model in one call": {
        *("cwm", "exaone", "gpt2", "gpt_bigcode", "gpt_oss", "internlm3", "iquestcoder", "llama"),
        *("ministral", "mistral", "mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
        *("seed_oss", "smollm3", "starcoder2"),
    },
    "all layers in one call": {"gemma"},
    "layer by layer": {"mellum"},
}
"""Model types by the path that they have on a CPU, where modules are not all that is fused.

Granite is not there: its checkpoints scale what a layer adds, which the kernel does not.
"""


def expected_path(module: Any, reached: PathName) -> PathName:
    """The path that a model's family has on a CPU, or what is reached if that is no slower."""
    kind = getattr(module.config, "model_type", "")
    known = (path for path, kinds in FAMILIES.items() if kind in kinds)
    return min(next(known, reached), reached, key=PATHS.index)


def path_without_kernels(module: nn.Module, reason: str) -> ModelPath:
    """The path on a CPU of a model in which nothing is replaced, for this reason."""
    name: PathName = "transformers' modules"
    expected = expected_path(module, name)
    return ModelPath(
        name=name, expected=expected, slower_because="" if expected == name else reason
    )


def path_on_cpu(module: nn.Module, attention: Attention, visitor: Visitor) -> ModelPath:
    """The path of a model that the visitor has fused, with attention in compiled kernels."""
    name = _reached(visitor.counts, len({attending for attending, _ in attention}))
    expected = expected_path(module, name)
    reason = "" if expected == name else _reason(module, attention, visitor.misses)
    return ModelPath(name=name, expected=expected, slower_because=reason)


def path_on_cuda(counts: Mapping[str, int]) -> ModelPath:
    """The path of a model of which so many modules of each kind are fused."""
    name: PathName = "module by module" if any(counts.values()) else "transformers' modules"
    return ModelPath(name=name, expected=name)


def path_with_attention(path: ModelPath, module: nn.Module, backend: str) -> ModelPath:
    """The path of a model with the attention that is attached, from the named backend.

    If it is not part of the compiled kernels, layers are called in turn.
    """
    decoder = fused_decoder(module)
    is_one_call = decoder is not None and decoder.links is not None
    return path if is_one_call else path_in_turn(path, backend)


def path_in_turn(path: ModelPath, backend: str) -> ModelPath:
    """The path where attention of the named backend is between the layers' calls."""
    slower: PathName = "layer by layer"
    if PATHS.index(path.name) >= PATHS.index(slower):
        return path
    reason = f"attention {backend!r} is not part of the compiled kernels"
    return ModelPath(name=slower, expected=path.expected, slower_because=reason)


def _reached(counts: Mapping[str, int], num_layers: int) -> PathName:
    if counts["model"]:
        return "whole model in one call"
    if counts["decoder"]:
        return "all layers in one call"
    if counts["layer"] == num_layers:
        return "layer by layer"
    return "module by module" if any(counts.values()) else "transformers' modules"


def _reason(module: Any, attention: Attention, misses: Mapping[str, str]) -> str:
    """What was not recognised or not proved, from the first layer to the model."""
    if is_quantised(module):
        return "the linear layers of its quantised checkpoint stay those of transformers"
    fused = {part.attention for part in module.modules() if isinstance(part, FusedLayer)}
    for index, (attending, _) in enumerate(attention):
        if attending not in fused:
            layer = place_of(module, attending).parent
            reason = misses.get("layer", "it was not recognised") + _without_rope(layer, attending)
            return f"layer {index}, {type(layer).__name__}: {reason}"
    for kind in ("decoder", "model"):
        if kind in misses:
            return f"{type(module).__name__}: {misses[kind]}"
    return f"{type(module).__name__} was not recognised"


def _without_rope(layer: nn.Module, attending: nn.Module) -> str:
    """What to add to the reason if the layer gets angles and its attention has no known RoPE."""
    if ROTATION not in inspect.signature(type(layer).forward).parameters:
        return ""
    return "" if applies_rope(attending) else f"; {type(attending).__name__} has no known RoPE"
